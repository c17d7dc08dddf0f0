#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cases.hpp"
#include "comm/device_communicator.hpp"
#include "comm/environment.hpp"
#include "comm/mpi_check.hpp"
#include "comm/mpi_mail.hpp"
#include "mesh_cases.hpp"

// Run by mpirun on several numbers of ranks (tests/mpi_main.cpp).

namespace forge::test {

extern Environment* environment;

namespace {

TEST(Mpi, AllOperations) {
  const auto world = environment->make_world();
  const auto device = device_communicator(*world);
  comm_cases::everything(*device);
}

TEST(Mpi, HostOperations) {
  const auto world = environment->make_world();
  comm_cases::host_operations(*world);
}

TEST(Mpi, EveryMesh) {
  const auto world = environment->make_world();
  mesh_cases::every_mesh(*world);
  mesh_cases::traffic(*world);
}

TEST(Mpi, TheWorldIsNumberedAsMpiDoes) {
  const auto world = environment->make_world();
  EXPECT_EQ(world->rank(), environment->rank());
  EXPECT_EQ(world->size(), environment->size());
  EXPECT_LT(environment->local_rank(), environment->local_size());
  EXPECT_LE(environment->local_size() * environment->nodes(), environment->size() * environment->local_size());
  std::string host(256, '\0');
  ASSERT_EQ(gethostname(host.data(), host.size()), 0);
  for (const std::string& node : world->gather_host(environment->node_name(environment->rank())))
    EXPECT_EQ(node, host.c_str()) << "all ranks of this test share a node";
  EXPECT_EQ(environment->node_name(environment->size()), "");
}

// Short letters and such that MPI hands over in two steps, while nobody waits; what isn't taken harms nobody.
TEST(Mpi, Letters) {
  const int rank = environment->rank(), size = environment->size();
  const auto letter = [](int from, int to, int number) {
    return std::to_string(from) + "," + std::to_string(to) + "," + std::to_string(number) +
           std::string(number % 3 == 2 ? 300000 : 3, 'x');
  };
  constexpr int letters = 9;
  auto mail = mpi_mail();
  for (int number = 0; number < letters; ++number)
    for (int to = 0; to < size; ++to)
      if (to != rank) mail->send(to, letter(rank, to, number));
  std::vector<int> next(static_cast<std::size_t>(size), 0);
  for (int left = letters * (size - 1); left > 0;) {
    const auto taken = mail->receive();
    if (!taken) continue;
    EXPECT_EQ(taken->text, letter(taken->from, rank, next[static_cast<std::size_t>(taken->from)]++));
    --left;
  }
  EXPECT_FALSE(mail->receive());
  environment->make_world()->barrier();
}

TEST(Mpi, AFailureOfTheLibraryHasItsCode) {
  int status = MPI_SUCCESS, size = 0;
  ASSERT_EQ(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), MPI_SUCCESS);
  status = MPI_Comm_size(MPI_COMM_NULL, &size);
  try {
    mpi_check(status, "MPI_Comm_size");
    FAIL() << "no error";
  } catch (const LibraryFailed& error) {
    EXPECT_EQ(static_cast<int>(error.code()), 6);
    EXPECT_NE(std::string(error.what()).find("MPI_Comm_size: MPI_ERR_COMM"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace forge::test

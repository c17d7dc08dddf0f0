#include <gtest/gtest.h>

#include "cases.hpp"
#include "comm/device_communicator.hpp"
#include "comm/environment.hpp"
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
}

}  // namespace
}  // namespace forge::test

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "../device_values.hpp"
#include "cases.hpp"
#include "comm/device_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "mesh_cases.hpp"

// Ranks as threads of this process, each with a device of its own: on the emulated GPU over NCCL.

namespace forge {
namespace {

class DeviceThreads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceThreads, testing::Values(1, 2, 3, 5, 8));

TEST_P(DeviceThreads, AllOperations) {
  run_ranks(GetParam(), [](Communicator& ranks) { comm_cases::everything(*device_communicator(ranks)); });
}

TEST_P(DeviceThreads, EveryMesh) {
  run_ranks(GetParam(), mesh_cases::every_mesh);
}

TEST(DeviceThreadRanks, TrafficOfAMesh) {
  run_ranks(5, mesh_cases::traffic);
}

TEST(DeviceThreadRanks, ManyRanksInManyGroups) {
  std::atomic<int> done{0};
  run_ranks(32, [&](Communicator& ranks) {
    const auto world = device_communicator(ranks);
    Stream stream;
    const auto row = world->split(world->rank() / 8, 0), column = world->split(world->rank() % 8, 0);
    const test::DeviceArray<double, 1> x(stream, {{1}}, {1});
    row->all_reduce(stream, x.view());
    column->all_reduce(stream, x.view());
    EXPECT_EQ(x.get().front(), 32);
    ++done;
  });
  EXPECT_EQ(done, 32);
}

// Others wait for it on their devices, or in the making of a communicator.
TEST(DeviceThreadRanks, AFailureEndsEveryRank) {
  for (int failing = 0; failing < 3; ++failing)
    for (const bool before : {false, true}) {
      const auto run = [&](Communicator& ranks) {
        if (before && ranks.rank() == failing) throw std::runtime_error("rank broke");
        const auto world = device_communicator(ranks);
        Stream stream;
        const test::DeviceArray<double, 1> x(stream, {{100}});
        world->all_reduce(stream, x.view());
        if (ranks.rank() == failing) throw std::runtime_error("rank broke");
        world->all_reduce(stream, x.view());
        stream.synchronize();
        world->barrier();
        ADD_FAILURE() << "an operation ended without one of its ranks";
      };
      try {
        run_ranks(3, run);
        ADD_FAILURE() << "the failure is lost";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "rank broke") << "the cause, not its echo";
      }
    }
}

}  // namespace
}  // namespace forge

#include <nccl.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "support.hpp"

// NCCL between emulated devices: values and groups are tested with forge's communicators (tests/comm); here, how it
// waits, what it refuses, and how it fails.

namespace forge::test {
namespace {

#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << #call

// run(rank) in a thread for each rank.
void on_threads(int ranks, const std::function<void(int)>& run) {
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      EXPECT_CUDA(cudaSetDevice(r));
      run(r);
    });
}

ncclUniqueId new_id() {
  ncclUniqueId id{};
  EXPECT_NCCL(ncclGetUniqueId(&id));
  return id;
}

// Communicators over two devices, used once so that their connections are there.
struct Pair {
  ncclComm_t first = nullptr, second = nullptr;
  Pair(const ncclUniqueId (&ids)[2], int rank, const TestStream& stream, const DeviceMemory<float>& x) {
    EXPECT_NCCL(ncclCommInitRank(&first, 2, ids[0], rank));
    EXPECT_NCCL(ncclCommInitRank(&second, 2, ids[1], rank));
    for (const auto comm : {first, second})
      EXPECT_NCCL(ncclAllReduce(x.data, x.data, x.count, ncclFloat32, ncclSum, comm, stream));
    stream.wait();
  }
  ~Pair() {
    ncclCommDestroy(first);
    ncclCommDestroy(second);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
};

// Two ranks launch on two communicators, in streams of their own, one of them in another order.
void launch_in_unequal_orders() {
  const ncclUniqueId ids[2] = {new_id(), new_id()};
  on_threads(2, [&](int rank) {
    const TestStream a, b;
    const DeviceMemory<float> x(a, {1}), y(b, {1});
    const Pair pair(ids, rank, a, x);
    for (const bool first : {rank == 0, rank != 0})
      EXPECT_NCCL(first ? ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, pair.first, a)
                        : ncclAllReduce(y.data, y.data, 1, ncclFloat32, ncclSum, pair.second, b));
    a.wait();
    b.wait();
  });
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Each child process reads the variable when it first uses a device.
TEST_F(Nccl, UnequalOrdersOfLaunchWaitInACircle) {
  EXPECT_REPORT((setenv("FORGE_VGPU_NCCL_ORDER", "launch", 1), launch_in_unequal_orders()),
                "wait for each other in a circle.*\n.*device . of process .*ncclAllReduce of 1");
  EXPECT_EXIT((setenv("FORGE_VGPU_NCCL_ORDER", "free", 1), launch_in_unequal_orders(), std::exit(0)),
              testing::ExitedWithCode(0), "")
      << "a GPU that has room for both";
}

// The first use makes connections, for which the host waits.
TEST_F(Nccl, TheFirstUseWaitsForTheOtherHosts) {
  const auto wait = [](bool transfer) {
    setenv("FORGE_VGPU_TIMEOUT_SECONDS", "1", 1);
    const ncclUniqueId id = new_id();
    on_threads(2, [&](int rank) {
      const TestStream stream;
      const DeviceMemory<float> x(stream, {1});
      ncclComm_t comm = nullptr;
      EXPECT_NCCL(ncclCommInitRank(&comm, 2, id, rank));
      if (rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
      transfer ? ncclSend(x.data, 1, ncclFloat32, 1, comm, stream)
               : ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, comm, stream);
      std::exit(0);
    });
  };
  EXPECT_REPORT(wait(false), "the first collective of a communicator, on rank 0; rank 1 has launched none");
  EXPECT_REPORT(wait(true), "the first transfer between ranks 0 and 1; rank 1 has launched none");
}

TEST_F(Nccl, ASendEndsWhenItIsReceived) {
  const ncclUniqueId id = new_id();
  std::atomic<bool> go{false};
  on_threads(2, [&](int rank) {
    const TestStream stream;
    const DeviceMemory<float> x(stream, {static_cast<float>(rank)});
    ncclComm_t comm = nullptr;
    EXPECT_NCCL(ncclCommInitRank(&comm, 2, id, rank));
    const auto exchange = [&] {
      EXPECT_NCCL(rank == 0 ? ncclSend(x.data, 1, ncclFloat32, 1, comm, stream)
                            : ncclRecv(x.data, 1, ncclFloat32, 0, comm, stream));
    };
    exchange();  // connects
    stream.wait();
    if (rank == 0) {
      exchange();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
      go = true;
    } else {
      while (!go) std::this_thread::yield();
      exchange();
    }
    EXPECT_EQ(x.read(stream).front(), 0);
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

TEST_F(Nccl, TwoRanksOnOneDeviceAreRefused) {
  const ncclUniqueId id = new_id();
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2, id, r), ncclInvalidUsage);
      EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU detected"), std::string::npos);
    });
}

TEST_F(Nccl, RanksMustCallTheSame) {
  const auto differ = [](bool transfer) {
    const ncclUniqueId id = new_id();
    on_threads(2, [&](int rank) {
      const TestStream stream;
      const DeviceMemory<float> x(stream, std::vector<float>(8, 1));
      ncclComm_t comm = nullptr;
      EXPECT_NCCL(ncclCommInitRank(&comm, 2, id, rank));
      const std::size_t count = rank == 0 ? 8 : 7;
      if (!transfer)
        ncclAllReduce(x.data, x.data, count, ncclFloat32, ncclSum, comm, stream);
      else if (rank == 0)
        ncclSend(x.data, count, ncclFloat32, 1, comm, stream);
      else
        ncclRecv(x.data, count, ncclFloat32, 0, comm, stream);
      stream.wait();
      std::this_thread::sleep_for(std::chrono::hours(1));
    });
  };
  EXPECT_REPORT(differ(false), "call different operations: rank . ncclAllReduce of [78].*rank . ncclAllReduce of [78]");
  EXPECT_REPORT(differ(true), "rank 0 sends 32 bytes, rank 1 receives 28");
}

TEST_F(Nccl, ArgumentsAreChecked) {
  const ncclUniqueId id = new_id();
  const TestStream stream;
  const DeviceMemory<float> x(stream, {1, 2});
  std::vector<float> host(2);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommInitRank(&comm, 1, id, 0));
  EXPECT_EQ(ncclAllReduce(host.data(), x.data, 2, ncclFloat32, ncclSum, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(x.data, x.data, 3, ncclFloat32, ncclSum, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(x.data, x.data, 2, ncclUint8, ncclSum, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(x.data, x.data, 2, ncclFloat32, 1, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(x.data, 2, ncclFloat32, 1, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NCCL(ncclAllReduce(x.data, x.data, 2, ncclFloat32, ncclSum, comm, stream));
  stream.wait();
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage) << "an id is used once";
}

// An operation that fails by itself shows as an asynchronous error; both ranks can end then. What a death test's
// process finds wrong is heard of only on stderr.
TEST_F(Nccl, FailuresOnDemandAreAsynchronous) {
  const auto fail = [] {
    setenv("FORGE_VGPU_NCCL_FAULT", "1:2", 1);
    const ncclUniqueId id = new_id();
    std::atomic<bool> failed = false;
    std::barrier together(2);
    on_threads(2, [&](int rank) {
      const auto expect_equal = [&](const char* what, int found, int expected) {
        if (found == expected) return;
        std::fprintf(stderr, "rank %d, %s: %d instead of %d\n", rank, what, found, expected);
        failed = true;
      };
      const TestStream stream;
      const DeviceMemory<float> x(stream, {1});
      ncclComm_t comm = nullptr;
      expect_equal("ncclCommInitRank", ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
      for (int i = 0; i < 3; ++i) {
        if (rank == 1 && i == 1) together.arrive_and_wait();  // it fails when the other one has launched all
        ncclAllReduce(x.data, x.data, 1, ncclFloat32, ncclSum, comm, stream);
      }
      if (rank == 0) together.arrive_and_wait();
      ncclResult_t error = ncclSuccess;
      while (error == ncclSuccess && !failed)
        expect_equal("ncclCommGetAsyncError", ncclCommGetAsyncError(comm, &error), ncclSuccess);
      expect_equal("asynchronous error", error, rank == 1 ? ncclSystemError : ncclRemoteError);
      expect_equal("cudaStreamQuery", cudaStreamQuery(stream), cudaErrorNotReady);
      together.arrive_and_wait();  // an abort ends the other rank's operations, too
      expect_equal("ncclCommAbort", ncclCommAbort(comm), ncclSuccess);
      stream.wait();
    });
    std::exit(failed || testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace forge::test

#include <atomic>
#include <set>

#include "support.hpp"

// The order of works: what events and streams promise, and that nothing else is promised.

namespace forge::test {
namespace {

class Streams : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

__global__ void add_kernel(int* x, int n) {
  x[0] = x[0] * 10 + n;
}
__global__ void copy_kernel(const int* from, int* to) {
  to[0] = from[0];
}

TEST_F(Streams, KeepTheirOrder) {
  const TestStream stream;
  const DeviceMemory<int> x(stream, {0});
  for (int n = 1; n <= 9; ++n) EXPECT_CUDA(start(stream, {1, 1}, add_kernel, x.data, n));
  EXPECT_EQ(x.read(stream), std::vector<int>{123456789});
}

// With an event always what was written, without one not always: a missing event shows.
TEST_F(Streams, EventsOrderThemAndNothingElseDoes) {
  const TestStream producer, consumer;
  std::set<int> with, without;
  for (int round = 0; round < 200; ++round)
    for (const bool ordered : {false, true}) {
      const DeviceMemory<int> x(producer, {1}), y(consumer, {0});
      const TestEvent event;
      EXPECT_CUDA(start(producer, {1, 1}, add_kernel, x.data, 2));
      EXPECT_CUDA(cudaEventRecord(event, producer));
      if (ordered) wait_for(event, consumer);
      EXPECT_CUDA(start(consumer, {1, 1}, copy_kernel, static_cast<const int*>(x.data), y.data));
      (ordered ? with : without).insert(y.read(consumer).front());
      producer.wait();
    }
  EXPECT_EQ(with, std::set<int>{12});
  EXPECT_EQ(without, (std::set<int>{1, 12}));
}

// A copy reads the host when its turn comes, whatever the memory is; what is changed before may come along.
TEST_F(Streams, CopiesReadTheHostLate) {
  const TestStream stream;
  void* pinned = nullptr;
  EXPECT_CUDA(cudaMallocHost(&pinned, sizeof(int)));
  int pageable = 0;
  for (int* host : {&pageable, static_cast<int*>(pinned)}) {
    std::set<int> seen;
    for (int round = 0; round < 200; ++round) {
      const DeviceMemory<int> x(1);
      *host = 1;
      EXPECT_CUDA(cudaMemcpyAsync(x.data, host, sizeof(int), cudaMemcpyHostToDevice, stream));
      *host = 2;
      seen.insert(x.read(stream).front());
    }
    EXPECT_TRUE(seen.contains(2)) << "the host is read at once";
  }
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(Streams, EventsKnowWhenTheyHavePassed) {
  const TestStream stream;
  const TestEvent event;
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "never recorded";
  std::atomic<bool> go{false};
  EXPECT_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* p) {
        while (!static_cast<std::atomic<bool>*>(p)->load()) continue;
      },
      &go));
  EXPECT_CUDA(cudaEventRecord(event, stream));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  go = true;
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

// Host functions must not call CUDA.
TEST_F(Streams, HostFunctionsCallNothing) {
  const TestStream stream;
  static cudaStream_t other = nullptr;
  other = stream;
  cudaError_t result = cudaSuccess;
  EXPECT_CUDA(cudaLaunchHostFunc(
      stream, [](void* p) { *static_cast<cudaError_t*>(p) = cudaStreamSynchronize(other); }, &result));
  stream.wait();
  EXPECT_EQ(result, cudaErrorNotPermitted);
}

TEST_F(Streams, WrongHandlesAreRefused) {
  const DeviceMemory<int> x(1);
  EXPECT_EQ(start(nullptr, {1, 1}, add_kernel, x.data, 1), cudaErrorNotSupported) << "the null stream";
  EXPECT_EQ(start(reinterpret_cast<cudaStream_t>(x.data), {1, 1}, add_kernel, x.data, 1),
            cudaErrorInvalidResourceHandle);
  const TestStream stream;
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(start(stream, {1, 1}, add_kernel, x.data, 1), cudaErrorInvalidResourceHandle) << "another device";
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  int devices = 0;
  EXPECT_CUDA(cudaGetDeviceCount(&devices));
  EXPECT_EQ(cudaSetDevice(devices), cudaErrorInvalidDevice);
}

// ---- graphs

// Two streams that fork and join; every launch does it all again.
TEST_F(Streams, GraphsRepeatWhatWasCaptured) {
  const TestStream stream, side;
  const DeviceMemory<int> x(stream, {0}), y(stream, {0}), sum(stream, {0});
  const TestEvent fork, join;
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(start(stream, {1, 1}, add_kernel, x.data, 1));
  EXPECT_CUDA(cudaEventRecord(fork, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(side, fork, 0));
  EXPECT_CUDA(start(side, {1, 1}, copy_kernel, static_cast<const int*>(x.data), y.data));
  EXPECT_CUDA(start(side, {1, 1}, add_kernel, y.data, 5));
  EXPECT_CUDA(cudaEventRecord(join, side));
  EXPECT_CUDA(start(stream, {1, 1}, add_kernel, x.data, 2));
  EXPECT_CUDA(cudaStreamWaitEvent(stream, join, 0));
  EXPECT_CUDA(start(stream, {1, 1}, copy_kernel, static_cast<const int*>(y.data), sum.data));
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(x.read(stream).front(), 0) << "a captured work runs at once";
  cudaGraphExec_t exec = nullptr;
  EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  // x: 0 → 12 → 1212; y is x between its two steps, and 5. The copy may also see both.
  std::set<int> seen;
  for (int launch = 0; launch < 40; ++launch) {
    EXPECT_CUDA(cudaMemsetAsync(x.data, 0, sizeof(int), stream));
    EXPECT_CUDA(cudaGraphLaunch(exec, stream));
    EXPECT_EQ(x.read(stream).front(), 12);
    seen.insert(sum.read(stream).front());
  }
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(seen, (std::set<int>{15, 125})) << "the branches of a graph run in any order";
}

TEST_F(Streams, CapturesEndWhole) {
  const TestStream stream, side;
  const DeviceMemory<int> x(stream, {0});
  const TestEvent event, outside;
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA(cudaStreamWaitEvent(side, event, 0));
  EXPECT_CUDA(start(side, {1, 1}, add_kernel, x.data, 1));
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);

  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

  EXPECT_CUDA(cudaEventRecord(outside, side));
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(cudaStreamWaitEvent(stream, outside, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(x.read(stream).front(), 0);
}

}  // namespace
}  // namespace forge::test

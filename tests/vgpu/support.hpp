#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

// Calls of CUDA's runtime for tests of the emulated device.

namespace forge::test {

inline constexpr int failed_device = 6;  // the exit code of a process whose device found a mistake

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess) << #call
#define EXPECT_REPORT(statement, text) EXPECT_EXIT(statement, testing::ExitedWithCode(failed_device), text)

struct TestStream {
  cudaStream_t stream = nullptr;
  TestStream() { EXPECT_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0)); }
  ~TestStream() { cudaStreamDestroy(stream); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream; }
  void wait() const { EXPECT_CUDA(cudaStreamSynchronize(stream)); }
};

struct TestEvent {
  cudaEvent_t event = nullptr;
  TestEvent() { EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  ~TestEvent() { cudaEventDestroy(event); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event; }
};

inline void wait_for(const TestEvent& event, const TestStream& stream) {
  EXPECT_CUDA(cudaStreamWaitEvent(stream, event, 0));
}

// An array in device memory.
template <class T>
struct DeviceMemory {
  T* data = nullptr;
  std::size_t count;
  explicit DeviceMemory(std::size_t n) : count(n) {
    void* p = nullptr;
    EXPECT_CUDA(cudaMalloc(&p, n * sizeof(T)));
    data = static_cast<T*>(p);
  }
  DeviceMemory(const TestStream& stream, const std::vector<T>& values) : DeviceMemory(values.size()) {
    EXPECT_CUDA(cudaMemcpyAsync(data, values.data(), count * sizeof(T), cudaMemcpyHostToDevice, stream));
    stream.wait();
  }
  ~DeviceMemory() { cudaFree(data); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::vector<T> read(const TestStream& stream) const {
    std::vector<T> values(count);
    EXPECT_CUDA(cudaMemcpyAsync(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    stream.wait();
    return values;
  }
};

struct Shape {
  unsigned blocks = 1, threads = 1;
  std::size_t shared = 0;
};
template <class... Parameters, class... Arguments>
cudaError_t start(cudaStream_t stream, const Shape& shape, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace forge::test

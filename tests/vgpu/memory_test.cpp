#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "support.hpp"

// Who may touch which bytes.

namespace forge::test {
namespace {

class DeviceBytes : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  TestStream stream;
};

__global__ void write_kernel(int* x, int i) {
  x[i] = 7;
}
__global__ void read_kernel(const int* x, int i, int* to) {
  to[0] = x[i];
}
__global__ void local_kernel(int** place, int* to) {
  int mine = 5;
  if (threadIdx.x == 0) *place = &mine;
  __syncthreads();
  if (threadIdx.x == 1) to[0] = **place;
  __syncthreads();
  to[1] = mine;
}

TEST_F(DeviceBytes, HostsMustNotTouchThem) {
  const DeviceMemory<int> x(stream, {1, 2, 3});
  EXPECT_REPORT(x.data[1] = 5, "the host writes 4 bytes.*memory of device 0");
  EXPECT_REPORT(std::exit(x.data[2]), "the host reads 4 bytes.*memory of device 0");
  EXPECT_EQ(x.read(stream), (std::vector<int>{1, 2, 3}));
}

// No access of the program's own, so that no call of the compiler stands before it.
TEST_F(DeviceBytes, LibrariesMustNotEither) {
  const DeviceMemory<int> x(stream, std::vector<int>(1000, 1));
  static volatile std::size_t bytes = 4000;
  std::vector<int> to(1000);
  EXPECT_REPORT(
      {
        std::memcpy(to.data(), x.data, bytes);
        std::exit(to[7]);
      },
      "the host.*memory of device 0");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], x.data, 8), -1) << "the system reads device memory";
  close(ends[0]);
  close(ends[1]);
}

TEST_F(DeviceBytes, KernelsTouchLiveMemoryOnly) {
  const DeviceMemory<int> x(stream, {1, 2, 3});
  int on_host = 0;
  const auto run = [&](auto... arguments) {
    start(stream, {1, 1}, arguments...);
    stream.wait();
  };
  EXPECT_REPORT(run(write_kernel, x.data, 3), "write_kernel.*writes 4 bytes.*0 bytes behind an allocation of 12 bytes");
  EXPECT_REPORT(run(write_kernel, x.data, -1), "write_kernel.*writes 4 bytes.*(behind|before)");
  EXPECT_REPORT(run(write_kernel, &on_host, 0), "write_kernel.*writes 4 bytes.*memory of the host");
  EXPECT_REPORT(run(read_kernel, static_cast<const int*>(&on_host), 0, x.data), "reads 4 bytes.*memory of the host");
  int* freed = nullptr;
  {
    const DeviceMemory<int> gone(100);
    freed = gone.data;
  }
  EXPECT_REPORT(run(write_kernel, freed, 0), "write_kernel.*writes 4 bytes");
}

TEST_F(DeviceBytes, LocalMemoryIsItsThreadsOwn) {
  const DeviceMemory<int*> place(1);
  const DeviceMemory<int> to(2);
  EXPECT_REPORT((start(stream, {1, 2}, local_kernel, place.data, to.data), stream.wait()),
                "local_kernel.*reads 4 bytes.*local memory of another thread");
}

TEST_F(DeviceBytes, CopiesKeepToTheirKind) {
  const DeviceMemory<int> x(4), y(4);
  std::vector<int> host(8);
  const auto copy = [&](void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, n * sizeof(int), kind, stream);
  };
  EXPECT_EQ(copy(host.data(), host.data() + 4, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), x.data, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(x.data, host.data(), 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(x.data, host.data(), 4, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(x.data, host.data(), 5, cudaMemcpyHostToDevice), cudaErrorInvalidValue) << "one too many";
  EXPECT_EQ(copy(x.data + 1, x.data, 3, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue) << "areas overlap";
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, stream), cudaErrorInvalidValue);
  EXPECT_CUDA(copy(x.data, host.data(), 4, cudaMemcpyHostToDevice));
  EXPECT_CUDA(copy(y.data, x.data, 4, cudaMemcpyDeviceToDevice));
  EXPECT_CUDA(copy(host.data() + 4, y.data, 4, cudaMemcpyDeviceToHost));
  stream.wait();
  EXPECT_EQ(cudaFree(x.data + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
}

TEST_F(DeviceBytes, AreCounted) {
  std::size_t before = 0, after = 0, total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&before, &total));
  {
    const DeviceMemory<char> x(std::size_t{1} << 20);
    EXPECT_CUDA(cudaMemGetInfo(&after, &total));
    EXPECT_EQ(before - after, std::size_t{1} << 20);
  }
  EXPECT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(p, nullptr);
}

}  // namespace
}  // namespace forge::test

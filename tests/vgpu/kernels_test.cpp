#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/normal.hpp"
#include "core/types.hpp"
#include "device/launch.hpp"
#include "support.hpp"

// Threads of a block: where they meet, what they share, and what is wrong.

namespace forge::test {
namespace {

class Kernels : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  TestStream stream;
};

// ---- operations of a warp, against plain loops over lanes

template <class Operation>
__global__ void lanes_kernel(double* values, Operation operation) {
  values[threadIdx.x] = operation(values[threadIdx.x]);
}

constexpr unsigned all = 0xffffffffu;

TEST_F(Kernels, ShufflesMoveValuesInSegments) {
  std::vector<double> in;
  for (int i = 0; i < 64; ++i) in.push_back(normal(1, static_cast<std::uint64_t>(i)));
  const auto check = [&](auto operation, const std::function<int(int)>& from, const std::string& what) {
    const DeviceMemory<double> values(stream, in);
    EXPECT_CUDA(start(stream, {1, 64}, lanes_kernel<decltype(operation)>, values.data, operation));
    const auto got = values.read(stream);
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)], in[static_cast<std::size_t>(i / 32 * 32 + from(i % 32))])
          << what << ", lane " << i;
  };
  for (const int width : {32, 16, 8, 2})
    for (const int n : {0, 1, 3, 9, 16}) {
      const std::string what = std::to_string(n) + " of " + std::to_string(width);
      check([=](double x) { return __shfl_sync(all, x, n, width); },
            [=](int l) { return l / width * width + n % width; }, "from " + what);
      check([=](double x) { return __shfl_up_sync(all, x, static_cast<unsigned>(n), width); },
            [=](int l) { return l % width >= n ? l - n : l; }, "up " + what);
      check([=](double x) { return __shfl_down_sync(all, x, static_cast<unsigned>(n), width); },
            [=](int l) { return l % width + n < width ? l + n : l; }, "down " + what);
      check([=](double x) { return __shfl_xor_sync(all, x, n, width); },
            [=](int l) { return (l ^ n) / width <= l / width ? l ^ n : l; }, "xor " + what);
    }
}

TEST_F(Kernels, VotesCountTheLanesThatTakePart) {
  std::vector<double> in(40);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i);
  const DeviceMemory<double> values(stream, in);
  const auto vote = [](double x) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    double sum = __ballot_sync(all, static_cast<int>(x) % 3 == 0);
    if (lane % 2 == 0) sum += 0x1p33 * __any_sync(0x55555555u, lane == 4) + 0x1p34 * __all_sync(0x55555555u, lane == 4);
    return sum;
  };
  EXPECT_CUDA(start(stream, {1, 40}, lanes_kernel<decltype(vote)>, values.data, vote));
  const auto got = values.read(stream);
  for (int i = 0; i < 40; ++i) {
    double expected = 0;
    for (int l = 0; l < (i < 32 ? 32 : 8); ++l) expected += (i / 32 * 32 + l) % 3 == 0 ? std::pow(2.0, l) : 0;
    if (i % 2 == 0) expected += 0x1p33;
    EXPECT_EQ(got[static_cast<std::size_t>(i)], expected) << i;
  }
}

// ---- shared memory

__global__ void reverse_kernel(int* values, int n) {
  FORGE_SHARED(int, all_of_block, 256);
  int* mine = reinterpret_cast<int*>(dynamic_shared());
  for (int i = threadIdx.x; i < n; i += blockDim.x) all_of_block[i] = values[blockIdx.x * n + i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) mine[i] = all_of_block[n - 1 - i] + 1000;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) values[blockIdx.x * n + i] = mine[i];
}

TEST_F(Kernels, BlocksHaveSharedArraysAndBarriers) {
  std::vector<int> in;
  for (int i = 0; i < 5 * 200; ++i) in.push_back(i);
  const DeviceMemory<int> values(stream, in);
  EXPECT_CUDA(start(stream, {5, 96, 200 * sizeof(int)}, reverse_kernel, values.data, 200));
  const auto got = values.read(stream);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i / 200 * 200 + 199 - i % 200 + 1000);
}

__global__ void untouched_kernel(float* found) {
  FORGE_SHARED(float, memory, 4);
  found[blockIdx.x] = memory[threadIdx.x];
  memory[threadIdx.x] = 1;
}

// What a block leaves behind is not what the next one finds, and neither is 0.
TEST_F(Kernels, SharedAndDeviceMemoryStartPoisoned) {
  const DeviceMemory<float> found(3);
  for (const float x : found.read(stream)) EXPECT_FALSE(std::abs(x) < 1e9) << x;
  EXPECT_CUDA(start(stream, {3, 1}, untouched_kernel, found.data));
  for (const float x : found.read(stream)) EXPECT_FALSE(std::abs(x) < 1e9) << x;
}

__global__ void count_kernel(int* counts, int* old) {
  old[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counts, 1);
  atomicMax(counts + 1, static_cast<int>(threadIdx.x));
  atomicMin(counts + 2, static_cast<int>(threadIdx.x));
  atomicCAS(counts + 3, 7, static_cast<int>(threadIdx.x));
}

TEST_F(Kernels, AtomicsReadAndWriteInOneAct) {
  const DeviceMemory<int> counts(stream, {0, -5, 5, 7}), old(300);
  EXPECT_CUDA(start(stream, {3, 100}, count_kernel, counts.data, old.data));
  const auto got = counts.read(stream);
  EXPECT_EQ(got[0], 300);
  EXPECT_EQ(got[1], 99);
  EXPECT_EQ(got[2], 0);
  EXPECT_NE(got[3], 7);
  std::vector<int> seen(300);
  for (const int i : old.read(stream)) ++seen.at(static_cast<std::size_t>(i));
  EXPECT_EQ(seen, std::vector<int>(300, 1));
}

// ---- mistakes

__global__ void divergent_barrier_kernel(int* x) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void early_end_kernel(int* x) {
  if (threadIdx.x == 3) return;
  __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void half_warp_kernel(int* x) {
  int value = 0;
  if (threadIdx.x < 16) value = __shfl_xor_sync(0xffffffffu, 1, 1);
  __syncthreads();
  x[threadIdx.x] = value;
}
__global__ void foreign_mask_kernel(int* x) {
  x[threadIdx.x] = __shfl_sync(2u, 1, 1);
}
// What stands there, without the report that an early read gets.
VGPU_UNCHECKED __attribute__((noinline)) int unreported(const int* p) {
  return *p;
}
template <bool reported>
__global__ void early_read_kernel(const int* in, int* out) {
  FORGE_SHARED(int, memory, 32 * 4);
  const int* mine = memory + threadIdx.x * 4;
  vgpu_copy_async(memory + threadIdx.x * 4, in + threadIdx.x * 4, 16, 16);
  vgpu_copy_async_commit();
  out[threadIdx.x] = reported ? *mine : unreported(mine);
  vgpu_copy_async_wait(0);
}
__global__ void forgotten_copy_kernel(const int* in) {
  FORGE_SHARED(int, memory, 4);
  vgpu_copy_async(memory, in, 16, 16);
}
__global__ void large_array_kernel(int* x) {
  FORGE_SHARED(char, memory, 49 << 10);
  x[0] = memory[0];
}

TEST_F(Kernels, ThreadsOfABlockMeetAtOneBarrier) {
  const DeviceMemory<int> x(32);
  const auto run = [&](auto kernel) {
    start(stream, {1, 32}, kernel, x.data);
    stream.wait();
  };
  EXPECT_REPORT(run(divergent_barrier_kernel), "divergent_barrier_kernel.*waits at the barrier.*other threads at");
  EXPECT_REPORT(run(early_end_kernel), "early_end_kernel.*(has ended while others wait|other threads have ended)");
  EXPECT_REPORT(run(half_warp_kernel), "half_warp_kernel.*no thread of the block can go on.*waits for lanes");
  EXPECT_REPORT(run(foreign_mask_kernel), "leaves out the lane that calls it");
}

TEST_F(Kernels, AsynchronousCopiesLandAtTheirWait) {
  const std::vector<int> in(128, 42);
  const DeviceMemory<int> from(stream, in), to(32);
  const auto read_early = [&](auto kernel) {
    EXPECT_CUDA(start(stream, {1, 32}, kernel, static_cast<const int*>(from.data), to.data));
    return to.read(stream);
  };
  for (const int x : read_early(early_read_kernel<false>)) EXPECT_NE(x, 42);
  EXPECT_REPORT(read_early(early_read_kernel<true>), "an asynchronous copy of thread .* goes that hasn't been waited");
  EXPECT_REPORT((start(stream, {1, 1}, forgotten_copy_kernel, static_cast<const int*>(from.data)), stream.wait()),
                "asynchronous copies that it hasn't waited for");
}

TEST_F(Kernels, LaunchesKeepToTheLimits) {
  const DeviceMemory<int> x(32);
  EXPECT_EQ(start(stream, {0, 32}, early_end_kernel, x.data), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(stream, {1u << 31, 32}, early_end_kernel, x.data), cudaErrorInvalidConfiguration);
  EXPECT_EQ(start(stream, {1, 1025}, early_end_kernel, x.data), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(start(stream, {1, 32, 48 << 10}, reverse_kernel, x.data, 1), cudaSuccess);
  EXPECT_EQ(start(stream, {1, 32, (48 << 10) + 1}, reverse_kernel, x.data, 1), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaFuncSetAttribute(reverse_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
            cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFuncSetAttribute(reverse_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  EXPECT_CUDA(start(stream, {1, 32, 200 << 10}, reverse_kernel, x.data, 1));
  // Another device has limits of its own.
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaFuncSetAttribute(reverse_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 10));
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_CUDA(start(stream, {1, 32, 200 << 10}, reverse_kernel, x.data, 1));
  EXPECT_REPORT((start(stream, {1, 1}, large_array_kernel, x.data), stream.wait()),
                "bytes of shared arrays; a block has");
  stream.wait();
}

// ---- conversions

TEST(Conversions, Bf16RoundsToNearestEven) {
  for (std::uint64_t i = 0; i < 200000; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(mix(3, i));
    if (i % 3 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // ties
    float x;
    std::memcpy(&x, &bits, 4);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(__bfloat162float(__float2bfloat16(x))));
      continue;
    }
    EXPECT_EQ(__float2bfloat16(x).bits, bf16(x).bits) << x;
    EXPECT_EQ(__bfloat162float(__float2bfloat16(x)), static_cast<float>(bf16(x)));
  }
}

// Every code is its own value's; between two of them the nearer one, or the even code; behind the last one as asked.
TEST(Conversions, Fp8IsTheNearestCode) {
  for (const auto kind : {__NV_E4M3, __NV_E5M2}) {
    const int largest = kind == __NV_E4M3 ? 0x7e : 0x7b;
    for (int code = 0; code <= largest; ++code) {
      const float x = vgpu::fp8_value(static_cast<std::uint8_t>(code), kind);
      EXPECT_EQ(__nv_cvt_float_to_fp8(x, __NV_NOSAT, kind), code);
      EXPECT_EQ(__nv_cvt_float_to_fp8(-x, __NV_NOSAT, kind), code | 0x80);
      if (code == largest) continue;
      const float next = vgpu::fp8_value(static_cast<std::uint8_t>(code + 1), kind), middle = (x + next) / 2;
      EXPECT_GT(next, x);
      EXPECT_EQ(__nv_cvt_float_to_fp8(middle, __NV_NOSAT, kind), code + code % 2);
      EXPECT_EQ(__nv_cvt_float_to_fp8(std::nextafter(middle, 0.0f), __NV_NOSAT, kind), code);
      EXPECT_EQ(__nv_cvt_float_to_fp8(std::nextafter(middle, 1e9f), __NV_NOSAT, kind), code + 1);
    }
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(__nv_cvt_float_to_fp8(infinity, __NV_SATFINITE, kind), largest);
    EXPECT_EQ(__nv_cvt_float_to_fp8(1e9f, __NV_SATFINITE, kind), largest);
    EXPECT_EQ(__nv_cvt_float_to_fp8(1e9f, __NV_NOSAT, kind), kind == __NV_E4M3 ? 0x7f : 0x7c);
    EXPECT_TRUE(std::isnan(vgpu::fp8_value(__nv_cvt_float_to_fp8(std::nanf(""), __NV_NOSAT, kind), kind)));
  }
  EXPECT_EQ(vgpu::fp8_value(0x7e, __NV_E4M3), 448.0f);
  EXPECT_EQ(vgpu::fp8_value(0x01, __NV_E4M3), 0x1p-9f);
  EXPECT_EQ(vgpu::fp8_value(0x38, __NV_E4M3), 1.0f);
  EXPECT_EQ(vgpu::fp8_value(0x7b, __NV_E5M2), 57344.0f);
  EXPECT_EQ(vgpu::fp8_value(0x3c, __NV_E5M2), 1.0f);
}

}  // namespace
}  // namespace forge::test

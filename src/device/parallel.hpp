#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "device/stream.hpp"
#include "device/team.hpp"

#if defined(FORGE_CUDA)
#if defined(__CUDACC__)
#include "device/launch.hpp"
#endif
#else
#include "device/host_loop.hpp"
#endif

// The only two ways in which kernels run loops. Bodies are lambdas by value, [=] FORGE_LAMBDA(…), written once for both
// builds; iterations must be independent of each other.
//
//   parallel_for(stream, n, [=] FORGE_LAMBDA(int64_t i) { … });                   element-wise
//   parallel_rows(stream, rows, [=] FORGE_LAMBDA(int64_t row, Team team) { … });  row-wise: the team shares one row
//
// Neither result depends on the number of threads: a row is always summed by one team in one order.

namespace forge {

#if defined(FORGE_CUDA)

#if defined(__CUDACC__)

namespace device_detail {

template <class F>
__global__ void for_kernel(std::int64_t n, F f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) f(i);
}

template <class F>
__global__ void rows_kernel(std::int64_t rows, F f) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row, Team{});
}

}  // namespace device_detail

template <class F>
void parallel_for(Stream& stream, std::int64_t n, F f) {
  if (n <= 0) return;
  const std::int64_t blocks = (n + 255) / 256;
  launch(stream, "parallel_for", device_detail::for_kernel<F>, {blocks < 65536 ? blocks : 65536, 256}, n, f);
}

template <class F>
void parallel_rows(Stream& stream, std::int64_t rows, F f) {
  if (rows <= 0) return;
  launch(stream, "parallel_rows", device_detail::rows_kernel<F>, {rows < 1048576 ? rows : 1048576, team_threads}, rows,
         f);
}

#endif

#else

namespace device_detail {

// One loop body compiled for each vector path; flatten pulls the lambda into the function that has the target.
template <class F>
__attribute__((flatten)) void rows_plain(std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t row = begin; row < end; ++row) f(row, Team{});
}
#if defined(__x86_64__)
template <class F>
__attribute__((flatten)) FORGE_TARGET_AVX2 void rows_avx2(std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t row = begin; row < end; ++row) f(row, Team{});
}
template <class F>
__attribute__((flatten)) FORGE_TARGET_AVX512 void rows_avx512(std::int64_t begin, std::int64_t end, const F& f) {
  for (std::int64_t row = begin; row < end; ++row) f(row, Team{});
}
#endif

template <class F>
void run_rows(std::int64_t begin, std::int64_t end, const F& f) {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return rows_avx512(begin, end, f);
  if (host_isa() == Isa::avx2) return rows_avx2(begin, end, f);
#endif
  rows_plain(begin, end, f);
}

// Splits [0, n) into blocks for the threads of the stream. Blocks start at multiples of `grain`.
template <class Run>
void split(int threads, std::int64_t n, std::int64_t grain, const Run& run) {
  const std::int64_t blocks = (n + grain - 1) / grain;
  if (threads == 1 || blocks < 2) return run(0, n);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t) {
    const std::int64_t begin = blocks * t / threads * grain;
    const std::int64_t end = blocks * (t + 1) / threads * grain;
    if (begin < end) run(begin, end < n ? end : n);
  }
}

}  // namespace device_detail

template <class F>
void parallel_for(Stream& stream, std::int64_t n, F f) {
  if (n <= 0) return;
  auto run = [=, threads = stream.threads()] {
    device_detail::split(threads, n, 4096,
                         [&](std::int64_t begin, std::int64_t end) { device_detail::run_for(begin, end, f); });
  };
  if (stream.runs_inline())
    run();
  else
    stream.submit(run);
}

template <class F>
void parallel_rows(Stream& stream, std::int64_t rows, F f) {
  if (rows <= 0) return;
  auto run = [=, threads = stream.threads()] {
    device_detail::split(threads, rows, 1,
                         [&](std::int64_t begin, std::int64_t end) { device_detail::run_rows(begin, end, f); });
  };
  if (stream.runs_inline())
    run();
  else
    stream.submit(run);
}

#endif

}  // namespace forge

#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/error.hpp"
#include "core/macros.hpp"
#include "device/row_tape.hpp"
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
//   parallel_rows(stream, rows, row_width<T>(n), …)  of n numbers T: short ones share a warp on CUDA
//   parallel_rows(stream, rows, parts, row_width<T>(n), [=] FORGE_LAMBDA(int64_t row, int64_t part, Team team) { … });
//                                                    a team for each part of a row
//   parallel_whole_warps(stream, rows, parts, row_width<T>(n), …)
//                                                    the same; on CUDA each team of a warp has its turn, for its calls
//                                                    of team.add_parts: one that is left over comes as part `parts`
//   parallel_rows<blocks>(stream, rows, …)           with registers for so many blocks on a GPU's multiprocessor
//   with_kept_packs<T>(n, aligned, [&](auto packs) { … });
//                                                    calls it with packs(), as a constant: how many pieces of 16 bytes
//                                                    of a row of n numbers T each worker keeps in registers; on CUDA so
//                                                    many that a warp has a row of up to 8 KiB, and waits for no other.
//                                                    aligned: aligned_rows of all rows that stand in a loop with it
//   parallel_kept_rows<packs>(stream, rows, row_width<T>(n), …)  as parallel_rows, of teams that keep so many
//
// Neither result depends on the number of threads: a row is always summed by one team in one order.

namespace forge {

// How many accesses of 16 bytes a row takes.
struct RowWidth {
  std::int64_t accesses;
};
template <class T>
constexpr RowWidth row_width(std::int64_t n) {
  constexpr std::int64_t in_one = 16 / static_cast<std::int64_t>(sizeof(T));
  return {(n + in_one - 1) / in_one};
}

#if defined(FORGE_CUDA)

#if defined(__CUDACC__)

namespace device_detail {

template <class F>
__global__ void for_kernel(std::int64_t n, F f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  FORGE_NO_UNROLL  // it would divide n by the stride
      for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) f(i);
}

// Few, as their registers are many: the rest of a multiprocessor's registers is enough for another block.
inline constexpr int warp_rows_threads = 128;

template <class F>
__global__ void rows_kernel(std::int64_t rows, F f) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row, Team{});
}

// How many teams of so many lanes, a power of two, so many threads are: a shift, where a GPU divides by a loop.
__device__ inline int teams_of(int threads, int lanes) {
  return threads >> (__ffs(lanes) - 1);
}

// Teams of so many lanes.
template <class F>
__global__ void short_rows_kernel(std::int64_t rows, int lanes, F f) {
  const std::int64_t teams = teams_of(team_threads, lanes), first = teams_of(thread_of_block(), lanes);
  for (std::int64_t row = blockIdx.x * teams + first; row < rows; row += gridDim.x * teams) f(row, Team{lanes});
}

// A warp for each row.
template <class F>
__global__ void __launch_bounds__(warp_rows_threads, 2) warp_rows_kernel(std::int64_t rows, F f) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (warp_rows_threads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (row < rows) f(row, Team{32});
}

template <int blocks, class F>
__global__ void __launch_bounds__(team_threads, blocks) bounded_rows_kernel(std::int64_t rows, int lanes, F f) {
  const std::int64_t teams = teams_of(team_threads, lanes), first = teams_of(thread_of_block(), lanes);
  for (std::int64_t row = blockIdx.x * teams + first; row < rows; row += gridDim.x * teams) f(row, Team{lanes});
}

template <int blocks, class F>
__global__ void __launch_bounds__(team_threads, blocks) bounded_long_rows_kernel(std::int64_t rows, F f) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row, Team{});
}

template <int blocks, class F>
auto long_rows() {
  if constexpr (blocks > 0)
    return &bounded_long_rows_kernel<blocks, F>;
  else
    return &rows_kernel<F>;
}
template <int blocks, class F>
auto short_rows() {
  if constexpr (blocks > 0)
    return &bounded_rows_kernel<blocks, F>;
  else
    return &short_rows_kernel<F>;
}

}  // namespace device_detail

template <class F>
void parallel_for(Stream& stream, std::int64_t n, F f) {
  if (n <= 0) return;
  const std::int64_t blocks = (n + 255) / 256;
  launch(stream, "parallel_for", device_detail::for_kernel<F>, {blocks < 65536 ? blocks : 65536, 256}, n, f);
}

template <int at_once = 0, class F>
void parallel_rows(Stream& stream, std::int64_t rows, F f) {
  if (rows <= 0) return;
  launch(stream, "parallel_rows", device_detail::long_rows<at_once, F>(),
         {rows < 1048576 ? rows : 1048576, team_threads}, rows, f);
}

template <int at_once = 0, class F>
void parallel_rows(Stream& stream, std::int64_t rows, RowWidth width, F f) {
  if (rows <= 0) return;
  if (width.accesses > 32 * device_detail::kept_packs) return parallel_rows(stream, rows, f);
  int lanes = 1;
  while (lanes < 32 && lanes < width.accesses) lanes *= 2;
  const std::int64_t blocks = (rows * lanes + team_threads - 1) / team_threads;
  launch(stream, "parallel_rows", device_detail::short_rows<at_once, F>(),
         {blocks < 1048576 ? blocks : 1048576, team_threads}, rows, lanes, f);
}

template <class T, class F>
void with_kept_packs(std::int64_t n, bool aligned, const F& f) {
  constexpr int kept = device_detail::kept_packs;
  const std::int64_t all = row_width<T>(n).accesses;
  const bool whole = aligned && n * static_cast<int>(sizeof(T)) % 16 == 0;
  if (whole && all > 32 * kept && all <= 32 * 2 * kept)
    f(std::integral_constant<int, 2 * kept>{});
  else if (whole && all > 32 * 2 * kept && all <= 32 * 4 * kept)
    f(std::integral_constant<int, 4 * kept>{});
  else
    f(std::integral_constant<int, kept>{});
}

template <int packs, class F>
void parallel_kept_rows(Stream& stream, std::int64_t rows, RowWidth width, F f) {
  using namespace device_detail;
  if (rows <= 0) return;
  // A warp also has rows that it can't hold: the order of a sum must not depend on where a row begins.
  const bool warps = packs > kept_packs || (width.accesses > 32 * kept_packs && width.accesses <= 32 * 4 * kept_packs);
  if (warps) {
    constexpr int teams = warp_rows_threads / 32;
    return launch(stream, "parallel_kept_rows", warp_rows_kernel<F>, {(rows + teams - 1) / teams, warp_rows_threads},
                  rows, f);
  }
  if constexpr (packs == kept_packs) parallel_rows(stream, rows, width, f);
}

template <int at_once = 0, class F>
void parallel_rows(Stream& stream, std::int64_t rows, std::int64_t parts, RowWidth width, F f) {
  require(rows * parts <= std::numeric_limits<std::int32_t>::max(), "parallel_rows: more parts of rows than 2^31");
  parallel_rows<at_once>(stream, rows * parts, width, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t row = quotient(task, parts);
    f(row, task - row * parts, team);
  });
}

template <int at_once = 0, class F>
void parallel_whole_warps(Stream& stream, std::int64_t rows, std::int64_t parts, RowWidth width, F f) {
  const std::int64_t tasks = rows * parts, all = (tasks + 31) / 32 * 32;
  require(all <= std::numeric_limits<std::int32_t>::max(), "parallel_whole_warps: more parts of rows than 2^31");
  parallel_rows<at_once>(stream, all, width, [=] FORGE_LAMBDA(std::int64_t task, Team team) {
    const std::int64_t row = task < tasks ? quotient(task, parts) : rows - 1;
    f(row, task < tasks ? task - row * parts : parts, team);
  });
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
template <class Body>
void split(int threads, std::int64_t n, std::int64_t grain, const Body& run) {
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
  stream.run([=, threads = stream.threads()] {
    device_detail::split(threads, n, 4096,
                         [&](std::int64_t begin, std::int64_t end) { device_detail::run_for(begin, end, f); });
  });
}

template <int at_once = 0, class F>
void parallel_rows(Stream& stream, std::int64_t rows, F f) {
  if (rows <= 0) return;
  stream.run([=, threads = stream.threads()] {
    device_detail::split(threads, rows, 1,
                         [&](std::int64_t begin, std::int64_t end) { device_detail::run_rows(begin, end, f); });
  });
}

template <class F>
void parallel_rows(Stream& stream, std::int64_t rows, RowWidth, F f) {
  parallel_rows(stream, rows, f);
}

template <class T, class F>
void with_kept_packs(std::int64_t, bool, const F& f) {
  f(std::integral_constant<int, 1>{});
}
template <int packs, class F>
void parallel_kept_rows(Stream& stream, std::int64_t rows, RowWidth, F f) {
  parallel_rows(stream, rows, f);
}

template <int at_once = 0, class F>
void parallel_rows(Stream& stream, std::int64_t rows, std::int64_t parts, RowWidth, F f) {
  parallel_rows<at_once>(stream, rows, [=](std::int64_t row, Team team) {
    for (std::int64_t part = 0; part < parts; ++part) f(row, part, team);
  });
}
template <int at_once = 0, class F>
void parallel_whole_warps(Stream& stream, std::int64_t rows, std::int64_t parts, RowWidth width, F f) {
  parallel_rows<at_once>(stream, rows, parts, width, f);
}

#endif

}  // namespace forge

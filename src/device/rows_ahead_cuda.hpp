#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/array.hpp"
#include "core/to_size.hpp"
#include "device/instructions.hpp"
#include "device/parallel.hpp"

namespace forge {

namespace device_detail {

// The rows in shared memory, `count` of them read together, of `all` packs, by a team of so many lanes, each with so
// many packs: bytes of a row there, and the number of such groups: one is computed with, the others are on their way.
// Of rows of 2 KiB and more, two blocks of a multiprocessor have 36 to 144 KiB on their way, and take 192 KiB at most.
struct Ring {
  int row_bytes, groups;

  FORGE_INLINE Ring(std::int64_t all, int packs, int lanes, int count) {
    const int most = packs * lanes;
    row_bytes = (all < most ? static_cast<int>(all) : most) * pack_bytes;
    groups = count * row_bytes > 24 * 1024 ? 2 : 4;
  }
  FORGE_INLINE int bytes(int count) const { return row_bytes * count * groups; }
};

FORGE_INLINE void start_copy([[maybe_unused]] void* to, [[maybe_unused]] const void* from) {
#if defined(__CUDA_ARCH__)
  copy_async_16(to, from);
#endif
}
FORGE_INLINE void end_group_of_copies() {
#if defined(__CUDA_ARCH__)
  copy_async_commit();
#endif
}
template <int pending>
FORGE_INLINE void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  copy_async_wait<pending>();
#endif
}
FORGE_INLINE unsigned char* shared_bytes() {
#if defined(__CUDA_ARCH__)
  return dynamic_shared();
#else
  return nullptr;
#endif
}

// Chunks are few: a block is a team, or a warp of teams of so many lanes.
template <int blocks, class F>
__global__ void __launch_bounds__(team_threads, blocks) rows_ahead_of_blocks(std::int64_t rows, F f) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(row, Team{});
}
template <class F>
__global__ void __launch_bounds__(32, 4) rows_ahead_of_warps(std::int64_t rows, int lanes, F f) {
  const std::int64_t teams = 32 / lanes, first = static_cast<int>(threadIdx.x) / lanes;
  for (std::int64_t row = blockIdx.x * teams + first; row < rows; row += gridDim.x * teams) f(row, Team{lanes});
}

}  // namespace device_detail

// A worker copies the packs that it reads itself, 16 bytes at a time, so that nobody waits for others. Rows that don't
// begin at a multiple of 16 bytes or end at one, and packs beyond the first ones of a worker, are read where they
// stand, in the same order; `packs` below kept_packs says that there are none (with_packs).
template <class T, int count, int packs, class Line>
class RowsAhead {
 public:
  FORGE_INLINE RowsAhead(Team team, int n, std::int64_t begin, std::int64_t end, const Line& line)
      : team_(team), n_(n), begin_(begin), end_(end), line_(line), ring_((n + W - 1) / W, packs, team.size, count) {
    memory_ = device_detail::shared_bytes() + device_detail::thread_of_block() / team.size * ring_.bytes(count);
    for (int g = 0; g < ring_.groups - 1; ++g) start(begin + g);
  }

  FORGE_INLINE Array<device_detail::Ahead<T, packs>, count> at(std::int64_t r) const {
    start(r + ring_.groups - 1);  // where the row before this one stood
    if (ring_.groups == 4)
      device_detail::wait_for_copies<3>();
    else
      device_detail::wait_for_copies<1>();
    Array<const T*, count> from{};
    if constexpr (!whole) from = line_(r);
    Array<device_detail::Ahead<T, packs>, count> rows;
    for_each_of<count>([&](int a) { rows[a] = {from[a], place(r, a)}; });
    return rows;
  }

 private:
  static constexpr int W = device_detail::Ahead<T, packs>::width;
  static constexpr bool whole = device_detail::is_whole<device_detail::Ahead<T, packs>>;

  FORGE_INLINE T* place(std::int64_t r, int a) const {
    const int group = static_cast<int>(r - begin_) & (ring_.groups - 1);
    return reinterpret_cast<T*>(memory_ + (group * count + a) * ring_.row_bytes);
  }
  // One group of copies, which is empty behind the last row.
  FORGE_INLINE void start(std::int64_t r) const {
    if (r < end_ && (whole || n_ % W == 0)) {
      const Array<const T*, count> from = line_(r);
      for_each_of<count>([&](int a) {
        if (from[a] == nullptr || (!whole && !device_detail::aligned(from[a]))) return;
        T* const to = place(r, a);
        FORGE_UNROLL
        for (int i = 0; i < packs; ++i)
          if (const int first = (team_.worker() + i * team_.size) * W; first < n_)
            device_detail::start_copy(to + first, from[a] + first);
      });
    }
    device_detail::end_group_of_copies();
  }

  Team team_;
  int n_;
  std::int64_t begin_, end_;
  Line line_;
  device_detail::Ring ring_;
  unsigned char* memory_;
};
template <class T, int count, int packs, class Line>
FORGE_INLINE RowsAhead<T, count, packs, Line> rows_ahead(Team team, std::int64_t n, std::int64_t begin,
                                                         std::int64_t end, Line line) {
  return {team, static_cast<int>(n), begin, end, line};
}

template <int packs, class T>
FORGE_INLINE auto row_beside(Team team, std::int64_t n, const T* data) {
  if constexpr (device_detail::is_whole<device_detail::Ahead<T, packs>>)
    return team.row<packs, true>(n, data);
  else
    return data;
}

// Rows that can't be copied whole have the code of the longest ones, which takes them in the same order.
template <class T, class F>
void with_packs(std::int64_t n, bool aligned, const F& f) {
  const std::int64_t all = row_width<T>(n).accesses;
  const bool whole = aligned && n * static_cast<int>(sizeof(T)) % 16 == 0;
  if (whole && all > 32 * device_detail::kept_packs && all <= team_threads)
    f(std::integral_constant<int, 1>{});
  else if (whole && all > team_threads && all <= 2 * team_threads)
    f(std::integral_constant<int, 2>{});
  else
    f(std::integral_constant<int, device_detail::kept_packs>{});
}

// Two blocks on a multiprocessor, if their sums leave so many registers.
template <class T, int count, int packs, int sums, class F>
void parallel_rows_ahead(Stream& stream, std::int64_t chunks, std::int64_t n, F f) {
  using namespace device_detail;
  if (chunks <= 0) return;
  const char* const name = "parallel_rows_ahead";
  const std::int64_t all = row_width<T>(n).accesses;
  const auto shared = [=](int lanes) { return static_cast<std::size_t>(Ring(all, packs, lanes, count).bytes(count)); };
  if (packs < kept_packs || all > 32 * kept_packs) {
    constexpr int blocks = sums * packs > 4 ? 1 : 2;
    return launch(stream, name, rows_ahead_of_blocks<blocks, F>, {chunks, team_threads, shared(team_threads)}, chunks,
                  f);
  }
  if constexpr (packs == kept_packs) {
    int lanes = 1;
    while (lanes < 32 && lanes < all) lanes *= 2;
    const int teams = 32 / lanes;
    launch(stream, name, rows_ahead_of_warps<F>, {(chunks + teams - 1) / teams, 32, to_size(teams) * shared(lanes)},
           chunks, lanes, f);
  }
}

}  // namespace forge

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/launch.hpp"
#include "device/parallel.hpp"
#include "device/rows_ahead_cuda.hpp"

// CUDA build, in files that nvcc compiles: the rows of device/rows_once.hpp.
//
// A multiprocessor has one block and one row at a time. Of its pieces, of 16 bytes a worker, the first ones stand in
// shared memory (28 of them, 224 KiB, on an H100), the next 16 (128 KiB) in registers, and the rest, "far", is read
// twice: last in the first pass, from its end backwards in the second, so that the L2 cache has it. Of 128,256 columns
// far are 149 KiB for each of 132 multiprocessors, 20 MB; between the two reads of a number, 7 us at most, all of them
// bring and write 28 MB at 4.2 TB/s. An H100's cache has 50 MB. As soon as the second pass is done with a place in
// shared memory, the next row's piece is on its way there: a block that waits for memory has always asked for some.

namespace forge {

namespace device_detail {

// Pieces: in shared memory at most, the first `half` of which land first; in registers; in one step of a loop.
inline constexpr int once_threads = 512, once_shared = 28, once_half = 12, once_kept = 16, once_together = 4;
inline constexpr int once_piece_bytes = once_threads * pack_bytes;

using OncePack = Pack<float, 4>;

// A worker's part of the largest number, and of the sum of exponentials less it.
struct OnceSum {
  float largest = -INFINITY, sum = 0;

  template <class Exp>
  FORGE_INLINE void add(const OncePack* x, const Exp& exp) {
    float most = largest;  // fmaxf leaves NaN out, which the sum has
    FORGE_UNROLL
    for (int i = 0; i < once_together; ++i) {
      const float(&v)[4] = x[i].values;
      most = ::fmaxf(most, ::fmaxf(::fmaxf(v[0], v[1]), ::fmaxf(v[2], v[3])));
    }
    const float shift = most == -INFINITY ? 0.0f : most;
    sum *= exp(largest - shift);
    FORGE_UNROLL
    for (int i = 0; i < once_together; ++i) {
      const float(&v)[4] = x[i].values;
      sum += (exp(v[0] - shift) + exp(v[1] - shift)) + (exp(v[2] - shift) + exp(v[3] - shift));
    }
    largest = most;
  }
};

}  // namespace device_detail

class RowOnce {
 public:
  FORGE_INLINE RowOnce(Team team, int n, int near)
      : worker_(team.worker()),
        packs_(n / 4),
        near_(near),
        near_packs_(packs_ < near * size ? packs_ : near * size),
        pieces_((packs_ + size - 1) / size),
        memory_(reinterpret_cast<float*>(device_detail::shared_bytes())) {}

  // From here on the row is `row`, which was the next one, and the next one is `next`; null ones aren't read.
  FORGE_INLINE void begin(const float* row, const float* next) {
    row_ = row;
    next_ = next;
    copies_ = false;
  }
  FORGE_INLINE void end() const {
    if (copies_) return;
    FORGE_NO_UNROLL
    for (int i = 0; i < near_; ++i) {
      if (i == device_detail::once_half) device_detail::end_group_of_copies();
      start(i);
    }
    if (near_ <= device_detail::once_half) device_detail::end_group_of_copies();
    device_detail::end_group_of_copies();
  }

  template <class Exp>
  FORGE_INLINE ExpSum<float> exp_sum(Team team, const Exp& exp) const {
    using namespace device_detail;
    OnceSum of_worker;
    OncePack x[2][once_together];
    FORGE_UNROLL
    for (int i = 0; i < once_kept; ++i) kept_[i] = read(near_ + i);
    const int far = near_ + once_kept;
    read_together(x[0], far);
    wait_for_copies<1>();
    add_shared(of_worker, 0, near_ < once_half ? near_ : once_half, exp);
    wait_for_copies<0>();
    add_shared(of_worker, once_half, near_, exp);
    FORGE_UNROLL
    for (int i = 0; i < once_kept; i += once_together) of_worker.add(kept_ + i, exp);
    FORGE_NO_UNROLL
    for (int i = far; i < pieces_; i += 2 * once_together) {  // the next ones are asked for before these are added
      read_together(x[1], i + once_together);
      of_worker.add(x[0], exp);
      read_together(x[0], i + 2 * once_together);
      of_worker.add(x[1], exp);
    }
    const float largest = of_worker.largest;
    const float all = team.template max<float>(size, [=](int) { return largest; });
    const float shift = all == -INFINITY ? 0.0f : all, part = of_worker.sum * exp(largest - shift);
    return {all, team.template sum<float>(size, [=](int) { return part; })};
  }

  template <class F, class T>
  FORGE_INLINE void map(Team, const F& f, T* d) const {
    using namespace device_detail;
    const int far = near_ + once_kept;
    OncePack x[once_together];
    FORGE_NO_UNROLL
    for (int i = far + (pieces_ - far - 1) / once_together * once_together; i >= far; i -= once_together) {
      read_together(x, i);
      FORGE_UNROLL
      for (int j = 0; j < once_together; ++j) write(i + j, x[j], f, d);
    }
    FORGE_UNROLL
    for (int i = 0; i < once_kept; ++i) write(near_ + i, kept_[i], f, d);
    FORGE_NO_UNROLL
    for (int i = 0; i < once_shared; i += once_together) {
      if (i == once_half) end_group_of_copies();
      if (i >= near_) continue;
      FORGE_UNROLL
      for (int j = 0; j < once_together; ++j) x[j] = read_shared(i + j);
      FORGE_UNROLL
      for (int j = 0; j < once_together; ++j)
        if (i + j < near_) write(i + j, x[j], f, d);
      FORGE_UNROLL
      for (int j = 0; j < once_together; ++j) start(i + j);
    }
    end_group_of_copies();
    copies_ = true;
  }

 private:
  static constexpr int size = device_detail::once_threads;
  using Pack = device_detail::OncePack;

  FORGE_INLINE int pack_of(int piece) const { return worker_ + piece * size; }
  // −Inf behind the row's end, which adds nothing to a sum of exponentials.
  FORGE_INLINE Pack read_or_none(const float* p, bool there) const {
    constexpr unsigned none = 0xff800000u;
    const uint4 word = there ? *reinterpret_cast<const uint4*>(p) : uint4{none, none, none, none};
    Pack pack;
    memcpy(&pack, &word, sizeof pack);
    return pack;
  }
  FORGE_INLINE Pack read(int piece) const {
    const int k = pack_of(piece);
    return read_or_none(row_ + k * 4, k < packs_);
  }
  FORGE_INLINE Pack read_shared(int piece) const {
    const int k = pack_of(piece);
    return read_or_none(memory_ + k * 4, k < near_packs_);
  }
  FORGE_INLINE void read_together(Pack* x, int piece) const {
    FORGE_UNROLL
    for (int j = 0; j < device_detail::once_together; ++j) x[j] = read(piece + j);
  }
  template <class Exp>
  FORGE_INLINE void add_shared(device_detail::OnceSum& to, int begin, int end, const Exp& exp) const {
    FORGE_NO_UNROLL
    for (int i = begin; i < end; i += device_detail::once_together) {
      Pack x[device_detail::once_together];
      FORGE_UNROLL
      for (int j = 0; j < device_detail::once_together; ++j) x[j] = read_shared(i + j);
      to.add(x, exp);
    }
  }
  // The copy of the next row's piece to where this row's has been read.
  FORGE_INLINE void start(int piece) const {
    const int k = pack_of(piece);
    if (next_ != nullptr && k < near_packs_) device_detail::start_copy(memory_ + k * 4, next_ + k * 4);
  }
  template <class F, class T>
  FORGE_INLINE void write(int piece, const Pack& x, const F& f, T* d) const {
    using Results = device_detail::Pack<T, 4>;
    using Word = std::conditional_t<sizeof(Results) == 8, std::uint64_t, uint4>;
    const int k = pack_of(piece);
    if (k >= packs_) return;
    Results y;
    FORGE_UNROLL
    for (int j = 0; j < 4; ++j) f(x.values[j], y.values[j]);
    Word word;
    memcpy(&word, &y, sizeof word);
    *reinterpret_cast<Word*>(d + k * 4) = word;
  }

  int worker_, packs_, near_, near_packs_, pieces_;  // near: in shared memory
  float* memory_;
  const float *row_ = nullptr, *next_ = nullptr;
  mutable Pack kept_[device_detail::once_kept];
  mutable bool copies_ = false;  // of the next row have been started
};

namespace device_detail {

template <class Line, class F>
__global__ void __launch_bounds__(once_threads, 1)
    rows_once_kernel(std::int64_t rows, int n, int near, Line line, F f) {
  const Team team{once_threads};
  RowOnce x(team, n, near);
  x.begin(nullptr, line(static_cast<std::int64_t>(blockIdx.x)));
  x.end();
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t next = row + gridDim.x;
    x.begin(line(row), next < rows ? line(next) : nullptr);
    f(row, team, x);
    x.end();
  }
}

}  // namespace device_detail

template <class Line, class F>
void parallel_rows_once(Stream& stream, std::int64_t rows, std::int64_t n, Line line, F f) {
  using namespace device_detail;
  if (rows <= 0) return;
  constexpr std::int64_t for_sums = 2048;  // static shared memory
  const std::int64_t room = (static_cast<std::int64_t>(most_shared_bytes()) - for_sums) / once_piece_bytes;
  const std::int64_t pieces = (n / 4 + once_threads - 1) / once_threads,
                     blocks = device_attribute(cudaDevAttrMultiProcessorCount);
  std::int64_t near = room < once_shared ? room : once_shared;
  near = pieces < near ? pieces : near;
  launch(stream, "parallel_rows_once", rows_once_kernel<Line, F>,
         {rows < blocks ? rows : blocks, once_threads, to_size(near * once_piece_bytes)}, rows, static_cast<int>(n),
         static_cast<int>(near), line, f);
}

}  // namespace forge

#pragma once

#include <cmath>
#include <cstdint>

#include "core/array.hpp"
#include "core/partials.hpp"
#include "device/lanes_cuda.hpp"
#include "device/packs.hpp"

// CUDA build, in files that nvcc compiles: the team of device/team.hpp.

namespace forge {

// Blocks of numbers begin at a multiple of so many, which 16 bytes of every type divide.
inline constexpr std::int64_t block_multiple = 64;

// Short rows, such as heads, that a team asks for at a time: one row's 16 bytes a worker keep memory half busy.
inline constexpr int rows_at_a_time = 4;

// Chunks of rows whose heads' sums are added by themselves: blocks for all multiprocessors.
constexpr std::int64_t head_chunks(std::int64_t rows) {
  return norm_backward_chunks(rows);
}

// Columns that a sum of columns is cut into where there are fewer than narrow_columns of them.
inline constexpr std::int64_t narrow_columns = 1024, narrow_strip = 32;

// Memory of a team that is a whole block: one for each type and count.
template <class T, int count>
struct TeamArray {
  FORGE_INLINE T* data() const { return device_detail::shared_array<T, count>(); }
};

struct Team {
  int size = team_threads;  // workers: a block, or so many neighbouring lanes of a warp, a power of two

  FORGE_INLINE int worker() const { return device_detail::thread_of_block() & (size - 1); }
  FORGE_INLINE bool leads() const { return worker() == 0; }
  FORGE_INLINE void sync() const { device_detail::team_barrier(size, lanes()); }
  FORGE_INLINE void sync_parts() const { device_detail::team_barrier(size, 0xffffffffu); }

  template <class F>
  FORGE_INLINE void each(std::int64_t count, F f) const {
    const int n = static_cast<int>(count);
    for (int j = worker(); j < n; j += size) f(j);
    sync();
  }

  template <int packs = device_detail::kept_packs, bool whole = (packs > device_detail::kept_packs), class T>
  FORGE_INLINE auto row(std::int64_t count, const T* data) const {
    device_detail::Row<T, packs, whole> row;
    row.data = data;
    const int n = static_cast<int>(count);
    if (whole || (n % row.width == 0 && device_detail::aligned(data)))
      keep<true>(row, n);
    else
      keep<false>(row, n);
    return row;
  }

  template <int packs = device_detail::kept_packs, class T, class F, class... P>
  FORGE_INLINE device_detail::Row<T, packs> made(std::int64_t count, F f, T* to, const P&... rows) const {
    device_detail::Row<T, packs> row;
    row.data = to;
    map(
        count, [&](T& result, const auto&... v) { result = f(v...); }, device_detail::Made<T, packs>{row}, rows...);
    return row;
  }

  template <class T, class F, class... P>
  FORGE_INLINE auto computed(std::int64_t count, F f, T*, const P&... rows) const {
    return device_detail::computed_row<T>(static_cast<int>(count), worker(), size, f, rows...);
  }

  template <class F, class... P>
  FORGE_INLINE void map(std::int64_t count, F f, const P&... rows) const {
    device_detail::each_of_rows(static_cast<int>(count), worker(), size, f, rows...);
  }

  template <class T, bool whole, class A>
  FORGE_INLINE auto beside(std::int64_t count, const A* data) const {
    constexpr int W = device_detail::Row<T>::width;
    const int n = static_cast<int>(count), first = worker() * W;
    const bool aligned = whole || (n % W == 0 && device_detail::aligned(data));
    return device_detail::Held<A, W>{{aligned ? device_detail::read_pack_or_zeros<true, W>(data + first, n - first)
                                              : device_detail::read_pack_or_zeros<false, W>(data + first, n - first)}};
  }

  template <class A, class T, bool one_piece, class F>
  FORGE_INLINE void sums_of_parts(std::int64_t count, A* to, const F& f) const {
    constexpr int W = device_detail::Row<T>::width;
    const int n = static_cast<int>(count);
    int lanes = !one_piece && n > 32 * W ? size : 1;
    while (lanes < 32 && lanes * W < n) lanes *= 2;
    const auto sums = this->template sums<A, T, 1>(lanes == size ? count : 0, one_piece ? nullptr : to);
    f(Team{lanes}, worker() / lanes, size / lanes, sums);
    add_groups(sums.kept[0], lanes, size / lanes);
    if (worker() < lanes) Team{lanes}.store(count, device_detail::Sums<A, W, 1>{to, {sums.kept[0]}});
  }

  template <class A, class T, int packs>
  FORGE_INLINE auto sums(std::int64_t count, A* data) const {
    device_detail::Sums<A, device_detail::Row<T>::width, packs> sums{data, {}};
    constexpr int W = decltype(sums)::width;
    const int n = static_cast<int>(count);
    for (int k = worker() + packs * size; k * W < n; k += size)
      for (int j = k * W; j < n && j < (k + 1) * W; ++j) data[j] = A(0);
    return sums;
  }
  template <class A, int W, int packs>
  FORGE_INLINE void store(std::int64_t count, const device_detail::Sums<A, W, packs>& sums) const {
    const int n = static_cast<int>(count);
    if (n % W == 0 && device_detail::aligned(sums.data))
      store_packs<true>(sums, n);
    else
      store_packs<false>(sums, n);
  }

  template <class A, class F>
  FORGE_INLINE A sum(std::int64_t count, F f) const {
    const int n = static_cast<int>(count);
    A value = 0;
    for (int j = worker(); j < n; j += size) value += A(f(j));
    return together(value, Plus{});
  }
  template <class A, class F, class P, class... Q>
  FORGE_INLINE A sum(std::int64_t count, F f, const P& row, const Q&... rows) const {
    return together(part_of_sum<A>(count, f, row, rows...), Plus{});
  }
  template <class A, class F, class... P>
  FORGE_INLINE A part_of_sum(std::int64_t count, F f, const P&... rows) const {
    A value = 0;
    map(
        count, [&](auto&... v) { value += A(f(v...)); }, rows...);
    return value;
  }
  template <class A, class F, class G, class... P>
  FORGE_INLINE Array<A, 2> two_sums(std::int64_t count, F f, G g, const P&... rows) const {
    Array<A, 2> values{};
    map(
        count,
        [&](auto&... v) {
          values[0] += A(f(v...));
          values[1] += A(g(v...));
        },
        rows...);
    add_up(values);
    return values;
  }
  template <bool one_warp, class A, int count>
  FORGE_INLINE void add_parts(Array<A, count>& parts) const {
    if (!one_warp && size > 32) return add_up(parts);
    FORGE_NO_UNROLL
    for (int offset = size / 2; offset > 0; offset /= 2)
      for_each_of<count>([&](int i) { parts[i] += device_detail::shuffle_xor(0xffffffffu, parts[i], offset); });
  }

  template <class A, class F>
  FORGE_INLINE A max(std::int64_t count, F f) const {
    const int n = static_cast<int>(count);
    A value = A(-INFINITY);
    for (int j = worker(); j < n; j += size) value = Larger{}(value, A(f(j)));
    return together(value, Larger{});
  }
  template <class A, class F, class P, class... Q>
  FORGE_INLINE A max(std::int64_t count, F f, const P& row, const Q&... rows) const {
    A value = A(-INFINITY);
    map(
        count, [&](auto&... v) { value = Larger{}(value, A(f(v...))); }, row, rows...);
    return together(value, Larger{});
  }

  // s ← s e^(m − max(m, x)) + e^(x − max(m, x)): one of the two exponents is 0.
  template <class A, class Exp>
  FORGE_INLINE ExpSum<A> exp_sum(std::int64_t count, const Exp& exp, const A* x) const {
    const A infinity = A(INFINITY);
    A largest = -infinity, sum = 0;
    map(
        count,
        [&](const A& x_j) {
          if (x_j == -infinity) return;
          const bool larger = x_j > largest;
          const A scale = exp(larger ? largest - x_j : x_j - largest);
          sum = larger ? sum * scale + A(1) : sum + scale;
          largest = larger ? x_j : largest;
        },
        x);
    const A all = together(largest, Larger{}), shift = all == -infinity ? A(0) : all;
    sum = together(largest == -infinity ? sum : sum * exp(largest - shift), Plus{});
    return {all, all == infinity ? all - all : sum};
  }

  // With more workers than packs of columns, groups of them take the rows in turn; their sums are added in order.
  template <class A, class Lines, class Term, class Store, class... P>
  FORGE_INLINE void column_sums(std::int64_t columns, std::int64_t begin, std::int64_t end, const Lines& lines,
                                Term term, Store store, P... rows) const {
    constexpr int W = device_detail::pack_bytes / static_cast<int>(sizeof(typename Lines::Value));
    const int n = static_cast<int>(columns), packs = (n + W - 1) / W;
    int across = 1;  // workers side by side
    while (across < packs && across < size) across *= 2;
    const int groups = size > 32 ? size / across : 1, group = worker() / across;
    for (int k = worker() % across; k < packs || groups > 1; k += across) {
      device_detail::Pack<A, W> sums{};
      const int first = k * W, count = n - first < W ? n - first : W;
      if (k < packs && group < groups) {
        if (lines.aligned && n % W == 0)
          add_rows<true, A, W>(sums, first, count, begin + group, end, groups, lines, term);
        else
          add_rows<false, A, W>(sums, first, count, begin + group, end, groups, lines, term);
      }
      if (groups > 1) add_groups(sums, across, groups);
      if (k < packs && group == 0) {
        const device_detail::Held<A, W> held{{sums}};
        if (n % W == 0 && (device_detail::aligned(device_detail::Access<P>::from(rows)) && ...))
          device_detail::PackStep<W, true, device_detail::Held<A, W>, P...>::run(store, first, count, 0, held, rows...);
        else
          device_detail::PackStep<W, false, device_detail::Held<A, W>, P...>::run(store, first, count, 0, held,
                                                                                  rows...);
      }
      if (groups > 1) break;  // all columns are taken
    }
    sync();
  }

  // A warp after the other, so that ranks follow the order of i.
  template <class Key, class Store>
  FORGE_INLINE void count_keys(std::int64_t count, std::int32_t* counts, Key key, Store store) const {
    const int n = static_cast<int>(count);
    for (int begin = 0; begin < n; begin += size) {
      const int i = begin + worker(), lane = worker() % 32;
      const std::int32_t mine = i < n ? key(i) : -1;
      int before = 0, alike = 0;  // lanes of this warp with the same key
      for (int offset = 0; offset < (size < 32 ? size : 32); ++offset) {
        const bool same = device_detail::shuffle_xor(lanes(), mine, offset) == mine;
        alike += same;
        before += same && (lane ^ offset) < lane;
      }
      for (int warp = 0; warp < (size + 31) / 32; ++warp) {
        if (warp == worker() / 32 && mine >= 0) {
          const std::int32_t earlier = counts[mine];
          store(i, earlier + before);
        }
        sync();
        if (warp == worker() / 32 && mine >= 0 && before == 0) counts[mine] += alike;
        sync();
      }
    }
  }

  template <class A, class Value, class Store>
  FORGE_INLINE A scan(std::int64_t count, Value value, Store store) const {
    const int n = static_cast<int>(count), each = (n + size - 1) / size;
    const int begin = worker() * each < n ? worker() * each : n, end = begin + each < n ? begin + each : n;
    A* const sums = device_detail::shared_array<A, team_threads>();
    A sum = 0;
    for (int i = begin; i < end; ++i) sum += value(i);
    sums[worker()] = sum;
    sync();
    A before = 0, all = 0;
    for (int w = 0; w < size; ++w) {
      if (w == worker()) before = all;
      all += sums[w];
    }
    for (int i = begin; i < end; ++i) {
      const A here = value(i);
      store(i, before);
      before += here;
    }
    sync();
    return all;
  }

 private:
  struct Plus {
    template <class A>
    FORGE_INLINE A operator()(A a, A b) const {
      return a + b;
    }
  };
  struct Larger {  // keeps NaN
    template <class A>
    FORGE_INLINE A operator()(A a, A b) const {
      return a > b || a != a ? a : b;
    }
  };

  // The team's lanes of its warp: a power of two, so that no division finds the first.
  FORGE_INLINE unsigned lanes() const {
    return size >= 32 ? 0xffffffffu : ((1u << size) - 1) << (device_detail::thread_of_block() & (32 - size));
  }

  template <bool whole, class R>
  FORGE_INLINE void keep(R& row, int n) const {
    constexpr int W = R::width;
    FORGE_UNROLL
    for (int i = 0; i < R::packs; ++i) {
      const int first = (worker() + i * size) * W;
      row.kept[i] = device_detail::read_pack_or_zeros<whole, W>(row.data + first, n - first);
    }
  }

  template <bool whole, class A, int W, int packs>
  FORGE_INLINE void store_packs(const device_detail::Sums<A, W, packs>& sums, int n) const {
    FORGE_UNROLL
    for (int i = 0; i < packs; ++i) {
      const int first = (worker() + i * size) * W;
      if (first < n) device_detail::write_pack<whole, W>(sums.data + first, n - first, sums.kept[i]);
    }
  }

  // Fixed order: each worker its numbers, then a butterfly in the warp, then the warps in order.
  template <class A, class Op>
  FORGE_INLINE A in_warp(A value, Op op) const {
    for (int offset = (size < 32 ? size : 32) / 2; offset > 0; offset /= 2)
      value = op(value, device_detail::shuffle_xor(lanes(), value, offset));
    return value;
  }
  template <class A, class Op>
  FORGE_INLINE A of_warps(const A* partial, Op op) const {
    A value = partial[0];
    for (int warp = 1; warp < size / 32; ++warp) value = op(value, partial[warp]);
    return value;
  }
  template <class A, class Op>
  FORGE_INLINE A together(A value, Op op) const {
    value = in_warp(value, op);
    if (size <= 32) {
      sync();
      return value;
    }
    A* const partial = device_detail::shared_array<A, 32>();
    if (worker() % 32 == 0) partial[worker() / 32] = value;
    sync();
    value = of_warps(partial, op);
    sync();
    return value;
  }

  // Likewise of several sums, for which the warps wait once.
  template <class A, int count>
  FORGE_INLINE void add_up(Array<A, count>& values) const {
    A* const partial = device_detail::shared_array<A, 32 * count>();
    for_each_of<count>([&](int i) {
      values[i] = in_warp(values[i], Plus{});
      if (size > 32 && worker() % 32 == 0) partial[i * 32 + worker() / 32] = values[i];
    });
    sync();
    if (size <= 32) return;
    for_each_of<count>([&](int i) { values[i] = of_warps(partial + i * 32, Plus{}); });
    sync();
  }

  // sums += the terms of the rows begin, begin + step, … of [begin, end), of which so many are read at a time.
  template <bool whole, class A, int W, class Lines, class Term>
  FORGE_INLINE static void add_rows(device_detail::Pack<A, W>& sums, int first, int count, std::int64_t begin,
                                    std::int64_t end, int step, const Lines& lines, const Term& term) {
    using Line = decltype(lines(0));
    using T = typename Lines::Value;
    constexpr int together = 4;
    const int all = static_cast<int>(end);
    FORGE_NO_UNROLL
    for (int r = static_cast<int>(begin); r < all; r += together * step) {
      Line line[together]{};
      device_detail::Pack<T, W> x[together], y[together];
      FORGE_UNROLL
      for (int i = 0; i < together; ++i)
        if (r + i * step < all) line[i] = lines(r + i * step);
      FORGE_UNROLL
      for (int i = 0; i < together; ++i) {
        const int there = line[i].there() ? count : 0;
        x[i] = device_detail::read_pack_or_zeros<whole, W>(line[i].x + first, there);
        if constexpr (Line::two) y[i] = device_detail::read_pack_or_zeros<whole, W>(line[i].y + first, there);
      }
      FORGE_UNROLL
      for (int i = 0; i < together; ++i) {
        if (!line[i].there()) continue;
        FORGE_UNROLL
        for (int j = 0; j < W; ++j)
          if constexpr (Line::two)
            sums.values[j] += A(term(line[i].scale, x[i].values[j], y[i].values[j]));
          else
            sums.values[j] += A(term(line[i].scale, x[i].values[j]));
      }
    }
  }

  template <class A, int W>
  FORGE_INLINE void add_groups(device_detail::Pack<A, W>& sums, int across, int groups) const {
    auto* const partial = device_detail::shared_array<device_detail::Pack<A, W>, team_threads>();
    partial[worker()] = sums;
    sync();
    if (worker() < across)
      for (int g = 1; g < groups; ++g)
        for (int i = 0; i < W; ++i) sums.values[i] += partial[worker() + g * across].values[i];
    sync();
  }
};

}  // namespace forge

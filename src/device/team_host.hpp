#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/array.hpp"
#include "core/macros.hpp"
#include "core/partials.hpp"

// CPU build: the team of device/team.hpp.

namespace forge {

template <class A>
struct ExpSum;

template <class T>
FORGE_INLINE T* in_place(T* data) {
  return data;
}

// Blocks of numbers that start where GPUs read 16 bytes at a time: no matter here.
inline constexpr std::int64_t block_multiple = 1;

// How many short rows, such as heads, a team takes at a time.
inline constexpr int rows_at_a_time = 1;

// Chunks of rows whose heads' sums are added by themselves.
constexpr std::int64_t head_chunks(std::int64_t rows) {
  return norm_partial_rows(rows);
}

// Columns that a sum of columns is cut into where there are fewer than narrow_columns of them.
inline constexpr std::int64_t narrow_columns = 0, narrow_strip = 256;

// Memory that the workers of a team share, of a thread block on CUDA.
template <class T, int count>
class TeamArray {
 public:
  FORGE_INLINE T* data() { return numbers_; }

 private:
  T numbers_[count];
};

struct Team {
  bool leads() const { return true; }
  void sync() const {}
  void sync_parts() const {}

  template <class F>
  FORGE_INLINE void each(std::int64_t n, const F& f) const {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) f(j);
  }

  template <int packs = 0, bool whole = false, class T>
  FORGE_INLINE const T* row(std::int64_t, const T* data) const {
    return data;
  }

  template <int packs = 0, class T, class F, class... P>
  FORGE_INLINE const T* made(std::int64_t n, const F& f, T* to, P*... rows) const {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) to[j] = f(rows[j]...);
    return to;
  }

  template <class T, class F, class... P>
  FORGE_INLINE const T* computed(std::int64_t n, const F& f, T* to, P*... rows) const {
    return made(n, f, to, rows...);
  }

  template <class F, class... T>
  FORGE_INLINE void map(std::int64_t n, const F& f, T*... rows) const {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) f(rows[j]...);
  }

  template <class T, bool whole, class A>
  FORGE_INLINE const A* beside(std::int64_t, const A* data) const {
    return data;
  }

  template <class A, class T, bool one_piece, class F>
  FORGE_INLINE void sums_of_parts(std::int64_t n, A* to, const F& f) const {
    f(Team{}, 0, 1, sums<A, T, 1>(n, to));
  }

  template <class A, class T, int packs>
  FORGE_INLINE A* sums(std::int64_t n, A* data) const {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) data[j] = A(0);
    return data;
  }
  template <class A>
  FORGE_INLINE void store(std::int64_t, const A*) const {}

  template <class A, class Lines, class Term, class Store, class... T>
  FORGE_INLINE void column_sums(std::int64_t n, std::int64_t begin, std::int64_t end, const Lines& lines,
                                const Term& term, const Store& store, T*... rows) const {
    constexpr std::int64_t block = 256;  // row by row, so that memory is read in order
    A sums[block];
    for (std::int64_t first = 0; first < n; first += block) {
      const std::int64_t width = n - first < block ? n - first : block;
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) sums[j] = 0;
      for (std::int64_t r = begin; r < end; ++r) {
        const auto line = lines(r);
        if (!line.there()) continue;
        const auto *x = line.x + first, *y = line.two ? line.y + first : nullptr;
        const auto scale = line.scale;
#pragma omp simd
        for (std::int64_t j = 0; j < width; ++j) {
          if constexpr (line.two)
            sums[j] += A(term(scale, x[j], y[j]));
          else
            sums[j] += A(term(scale, x[j]));
        }
      }
#pragma omp simd
      for (std::int64_t j = 0; j < width; ++j) store(sums[j], rows[first + j]...);
    }
  }

  template <class A, class F>
  FORGE_INLINE A sum(std::int64_t n, const F& f) const {
    A value = 0;
#pragma omp simd reduction(+ : value)
    for (std::int64_t j = 0; j < n; ++j) value += A(f(j));
    return value;
  }
  template <class A, class F, class T, class... U>
  FORGE_INLINE A sum(std::int64_t n, const F& f, T* row, U*... rows) const {
    return sum<A>(n, [=](std::int64_t j) { return f(row[j], rows[j]...); });
  }

  template <class A, class F, class... T>
  FORGE_INLINE A part_of_sum(std::int64_t n, const F& f, T*... rows) const {
    return sum<A>(n, f, rows...);
  }
  template <class A, class F, class G, class... T>
  FORGE_INLINE Array<A, 2> two_sums(std::int64_t n, const F& f, const G& g, T*... rows) const {
    return {{sum<A>(n, f, rows...), sum<A>(n, g, rows...)}};
  }
  template <bool one_warp, class Parts>
  FORGE_INLINE void add_parts(Parts&) const {}

  template <class A, class F>
  FORGE_INLINE A max(std::int64_t n, const F& f) const {
    A value = -__builtin_inff();
    A poison = 0;       // a maximum that keeps NaN would not vectorise: x - x is 0, or NaN for NaN and Inf
#if defined(__clang__)  // vectorises the maximum of integers alone: of bits, whose order is turned around below zero
    using Bits = std::conditional_t<sizeof(A) == 4, std::int32_t, std::int64_t>;
    constexpr Bits all = std::numeric_limits<Bits>::max();  // but the sign
    const auto turned = [](Bits bits) { return bits < 0 ? bits ^ all : bits; };
    Bits most = turned(__builtin_bit_cast(Bits, value));
#pragma omp simd reduction(max : most) reduction(+ : poison)
    for (std::int64_t j = 0; j < n; ++j) {
      const A x = A(f(j));
      const Bits bits = turned(__builtin_bit_cast(Bits, x));
      most = bits > most ? bits : most;
      poison += x != x ? x : A(0);
    }
    value = __builtin_bit_cast(A, turned(most));
#else
#pragma omp simd reduction(max : value) reduction(+ : poison)
    for (std::int64_t j = 0; j < n; ++j) {
      const A x = A(f(j));
      value = x > value ? x : value;
      poison += x != x ? x : A(0);
    }
#endif
    return value + poison;
  }
  template <class A, class F, class T, class... U>
  FORGE_INLINE A max(std::int64_t n, const F& f, T* row, U*... rows) const {
    return max<A>(n, [=](std::int64_t j) { return f(row[j], rows[j]...); });
  }

  template <class A, class Exp>
  FORGE_INLINE ExpSum<A> exp_sum(std::int64_t n, const Exp& exp, const A* x) const {
    const A largest = max<A>(n, [=](std::int64_t j) { return x[j]; });
    const A shift = largest == -static_cast<A>(INFINITY) ? A(0) : largest;
    return {largest, sum<A>(n, [=](std::int64_t j) { return exp(x[j] - shift); })};
  }

  template <class Key, class Store>
  FORGE_INLINE void count_keys(std::int64_t n, std::int32_t* counts, const Key& key, const Store& store) const {
    for (std::int64_t i = 0; i < n; ++i)
      if (const std::int32_t e = key(i); e >= 0) store(i, counts[e]++);
  }

  template <class A, class Value, class Store>
  FORGE_INLINE A scan(std::int64_t n, const Value& value, const Store& store) const {
    A before = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const A here = value(i);
      store(i, before);
      before += here;
    }
    return before;
  }
};

}  // namespace forge

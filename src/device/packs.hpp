#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/macros.hpp"
#include "device/instructions.hpp"
#include "device/launch.hpp"

#if defined(__CUDA_ARCH__) && !defined(FORGE_VGPU)
#define FORGE_UNROLL _Pragma("unroll")
#define FORGE_UNROLL_4 _Pragma("unroll 4")
#define FORGE_NO_UNROLL _Pragma("unroll 1")
#else
#define FORGE_UNROLL
#define FORGE_UNROLL_4
#define FORGE_NO_UNROLL
#endif

// CUDA build, in files that nvcc compiles: how the workers of a team (device/team_cuda.hpp) read and write rows, 16
// bytes at a time.
//
// A row of n numbers is cut into packs of W numbers, which take 16 bytes in the narrowest type of a loop and a multiple
// of 16 in the others. Pack k is worker k % size's, whether it moves in one piece or, because an address isn't aligned
// or n no multiple of W, number by number: the order of a sum depends on n and the types alone.

namespace forge {

// A row that a loop reads and writes at the same place.
template <class T>
struct InPlace {
  T* data;
};
template <class T>
FORGE_INLINE InPlace<T> in_place(T* data) {
  return {data};
}

namespace device_detail {

inline constexpr int pack_bytes = 16;
inline constexpr int kept_packs = 4;  // of a row, in a worker's registers

template <class T, int W>
struct Pack {
  T values[W];
};

// A worker's part of a row that was read: its first `packs` in registers, the others in memory. whole: these are all
// that a worker has of the row, and loops with it need no code for rows that don't begin at a multiple of 16 bytes, or
// end at one, which takes registers.
template <class T, int count = kept_packs, bool whole = (count > kept_packs)>
struct Row {
  static constexpr int width = pack_bytes / static_cast<int>(sizeof(T)), packs = count;
  const T* data;
  Pack<T, width> kept[packs];
};

// A row whose first packs were copied to shared memory ahead of their use (device/rows_ahead_cuda.hpp), where it is
// read 16 bytes at a time: the copy begins at `near`.
template <class T, int count>
struct Ahead {
  static constexpr int width = pack_bytes / static_cast<int>(sizeof(T)), packs = count;
  const T *data, *near;
};

// Sums that a worker adds to: its first `packs` in registers, the others where they stand.
template <class A, int W, int count>
struct Sums {
  static constexpr int width = W, packs = count;
  A* data;
  mutable Pack<A, W> kept[packs];
};

// Numbers that a worker has computed, for a loop of one pack.
template <class T, int W>
struct Held {
  static constexpr int width = W, packs = 1;
  Pack<T, W> kept[1];
};

// A row that is written, and kept as Row for the loops behind.
template <class T, int count>
struct Made {
  static constexpr int width = Row<T>::width, packs = count;
  Row<T, count>& row;
};

// A row that is kept alone.
template <class T>
struct Computed {
  static constexpr int width = Row<T>::width, packs = 1;
  Row<T, 1, true>& row;
};

// How each argument of a loop is read and written. P: const T* (read), T* (written), InPlace<T> (both), Row<T> (read),
// Ahead<T> (read), Sums<A, W> (both), Made<T> and Computed<T> (written). holds: it is read in registers; keeps: its
// result is left in registers; moves: it is read from memory or written to it. `copied`: its first packs are read in
// shared memory.
template <class P>
struct Access;
struct NotCopied {
  static constexpr bool copied = false;
};
struct InMemory : NotCopied {
  static constexpr bool holds = false, keeps = false, moves = true;
};
template <class T>
struct Access<const T*> : InMemory {
  using Value = T;
  static constexpr bool reads = true, writes = false;
  FORGE_INLINE static const T* from(const T* p) { return p; }
};
template <class T>
struct Access<T*> : InMemory {
  using Value = T;
  static constexpr bool reads = false, writes = true;
  FORGE_INLINE static T* from(T* p) { return p; }
};
template <class T>
struct Access<InPlace<T>> : InMemory {
  using Value = T;
  static constexpr bool reads = true, writes = true;
  FORGE_INLINE static T* from(InPlace<T> p) { return p.data; }
};
template <class T, int count, bool whole>
struct Access<Row<T, count, whole>> : NotCopied {
  using Value = T;
  static constexpr bool reads = true, writes = false, holds = true, keeps = false, moves = false;
  FORGE_INLINE static const T* from(const Row<T, count, whole>& p) { return p.data; }
};
template <class T, int count>
struct Access<Ahead<T, count>> {
  using Value = T;
  static constexpr bool reads = true, writes = false, holds = false, keeps = false, moves = false, copied = true;
  FORGE_INLINE static const T* from(const Ahead<T, count>& p) { return p.data; }
};
template <class A, int W, int count>
struct Access<Sums<A, W, count>> : NotCopied {
  using Value = A;
  static constexpr bool reads = true, writes = true, holds = true, keeps = true, moves = false;
  FORGE_INLINE static A* from(const Sums<A, W, count>& p) { return p.data; }
  FORGE_INLINE static Pack<A, W>& kept(const Sums<A, W, count>& p, int i) { return p.kept[i]; }
};
template <class T, int count>
struct Access<Made<T, count>> : NotCopied {
  using Value = T;
  static constexpr bool reads = false, writes = true, holds = false, keeps = true, moves = true;
  FORGE_INLINE static T* from(const Made<T, count>& p) { return const_cast<T*>(p.row.data); }
  FORGE_INLINE static Pack<T, Row<T>::width>& kept(const Made<T, count>& p, int i) { return p.row.kept[i]; }
};
template <class T>
struct Access<Computed<T>> : NotCopied {
  using Value = T;
  static constexpr bool reads = false, writes = false, holds = false, keeps = true, moves = false;
  FORGE_INLINE static const T* from(const Computed<T>&) { return nullptr; }
  FORGE_INLINE static Pack<T, Row<T>::width>& kept(const Computed<T>& p, int i) { return p.row.kept[i]; }
};
template <class T, int W>
struct Access<Held<T, W>> : NotCopied {
  using Value = T;
  static constexpr bool reads = false, writes = false, holds = true, keeps = false, moves = false;
  FORGE_INLINE static const T* from(const Held<T, W>&) { return nullptr; }
};
template <class P>
inline constexpr bool is_whole = false;
template <class T, int count>
inline constexpr bool is_whole<Row<T, count, true>> = true;
template <class T, int count>
inline constexpr bool is_whole<Made<T, count>> = count > kept_packs;
template <class T, int count>
inline constexpr bool is_whole<Ahead<T, count>> = count < kept_packs;
template <class P>
using value_of = typename Access<P>::Value;

// How many packs of a worker stand elsewhere than in memory, in a loop over such arguments.
template <class P>
constexpr int near_packs() {
  if constexpr (Access<P>::holds || Access<P>::keeps || Access<P>::copied)
    return P::packs;
  else
    return 0;
}
template <class... P>
constexpr int near_packs_of_all() {
  int most = 0;
  ((most = near_packs<P>() > most ? near_packs<P>() : most), ...);
  return most;
}

// Numbers of a pack in a loop over such arguments.
template <class... P>
constexpr int pack_width() {
  int narrowest = pack_bytes;
  ((narrowest = static_cast<int>(sizeof(value_of<P>)) < narrowest ? static_cast<int>(sizeof(value_of<P>)) : narrowest),
   ...);
  return pack_bytes / narrowest;
}

FORGE_INLINE bool aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % pack_bytes == 0;
}

template <bool whole, int W, class T>
FORGE_INLINE Pack<T, W> read_pack(const T* p, int count) {
  static_assert(W * sizeof(T) % pack_bytes == 0);
  Pack<T, W> pack;
  if constexpr (whole) {
    FORGE_UNROLL
    for (int i = 0; i < W * static_cast<int>(sizeof(T)) / pack_bytes; ++i) {
      const uint4 word = reinterpret_cast<const uint4*>(p)[i];
      memcpy(reinterpret_cast<unsigned char*>(&pack) + i * pack_bytes, &word, pack_bytes);
    }
  } else {
    pack = {};
    FORGE_UNROLL
    for (int i = 0; i < W; ++i)
      if (i < count) pack.values[i] = p[i];
  }
  return pack;
}

// Zeros where count <= 0, by words: the compiler would hold each number of a pack by itself if one of them was set so.
template <bool whole, int W, class T>
FORGE_INLINE Pack<T, W> read_pack_or_zeros(const T* p, int count) {
  if constexpr (whole) {
    Pack<T, W> pack;
    FORGE_UNROLL
    for (int i = 0; i < W * static_cast<int>(sizeof(T)) / pack_bytes; ++i) {
      const uint4 word = count > 0 ? reinterpret_cast<const uint4*>(p)[i] : uint4{0, 0, 0, 0};
      memcpy(reinterpret_cast<unsigned char*>(&pack) + i * pack_bytes, &word, pack_bytes);
    }
    return pack;
  } else {
    return read_pack<false, W>(p, count);
  }
}

template <bool whole, int W, class T>
FORGE_INLINE void write_pack(T* p, int count, const Pack<T, W>& pack) {
  if constexpr (whole) {
    FORGE_UNROLL
    for (int i = 0; i < W * static_cast<int>(sizeof(T)) / pack_bytes; ++i) {
      std::uint32_t words[4];
      memcpy(words, reinterpret_cast<const unsigned char*>(&pack) + i * pack_bytes, pack_bytes);
      store_16(reinterpret_cast<uint4*>(p) + i, words);
    }
  } else {
    FORGE_UNROLL
    for (int i = 0; i < W; ++i)
      if (i < count) p[i] = pack.values[i];
  }
}

// The pack, without another copy in the compiler's registers: it would keep numbers of 16 bits as they were converted
// for the loop before, in twice the registers.
template <class T, int W>
FORGE_INLINE Pack<T, W> as_stored(Pack<T, W> pack) {
#if defined(__CUDA_ARCH__) && !defined(FORGE_VGPU)
  if constexpr (sizeof(T) < 4) {
    std::uint32_t words[sizeof pack / 4];
    memcpy(words, &pack, sizeof pack);
    FORGE_UNROLL
    for (auto& word : words) asm volatile("" : "+r"(word));
    memcpy(&pack, words, sizeof pack);
  }
#endif
  return pack;
}

// One pack of a loop: f(v…) for each of its numbers, v being the numbers read (const T&) and written (T&).
template <int W, bool whole, class... P>
struct PackStep {
  template <class F>
  FORGE_INLINE static void run(const F& f, int first, int count, [[maybe_unused]] int kept, const P&... p) {
    compute(f, first, count, kept, p..., read(p, first, count, kept)...);
  }

 private:
  template <class Q>
  FORGE_INLINE static Pack<value_of<Q>, W> read(const Q& p, int first, int count, int kept) {
    if constexpr (Access<Q>::holds) {
      static_assert(Q::width == W, "a row that is kept stands beside rows of its own type");
      if (kept >= 0) return as_stored(p.kept[kept]);
    }
    if constexpr (Access<Q>::copied && whole) {
      static_assert(Q::width == W, "a row that is read ahead stands beside rows of its own type");
      if (kept >= 0) return read_pack<true, W>(p.near + first, count);
    }
    if constexpr (Access<Q>::reads)
      return read_pack<whole, W>(static_cast<const value_of<Q>*>(Access<Q>::from(p)) + first, count);
    return {};
  }
  template <class Q>
  FORGE_INLINE static void write(const Q& p, int first, int count, int kept, const Pack<value_of<Q>, W>& pack) {
    if constexpr (Access<Q>::keeps) {
      static_assert(Q::width == W, "a row that is kept stands beside rows of its own type");
      if (kept >= 0) Access<Q>::kept(p, kept) = as_stored(pack);
      if (kept >= 0 && !Access<Q>::moves) return;
    }
    if constexpr (Access<Q>::writes) write_pack<whole, W>(Access<Q>::from(p) + first, count, pack);
  }
  template <class F>
  FORGE_INLINE static void compute(const F& f, int first, int count, int kept, const P&... p,
                                   Pack<value_of<P>, W>... pack) {
    FORGE_UNROLL
    for (int i = 0; i < W; ++i)
      if (whole || i < count) f(pack.values[i]...);
    (write(p, first, count, kept, pack), ...);
  }
};

// f(v…) for every number of rows of n, worker `worker` of `size`.
template <bool whole, class F, class... P>
FORGE_INLINE void each_pack(int n, int worker, int size, const F& f, const P&... p) {
  constexpr int W = pack_width<P...>();
  using Step = PackStep<W, whole, P...>;
  const int packs = (n + W - 1) / W;
  const auto step = [&](int k, int kept) { Step::run(f, k * W, n - k * W < W ? n - k * W : W, kept, p...); };
  int k = worker;
  constexpr int near = near_packs_of_all<P...>();
  static_assert(((near_packs<P>() == 0 || near_packs<P>() == near) && ...), "rows with as many packs in registers");
  FORGE_UNROLL
  for (int i = 0; i < near; ++i, k += size)
    if (k < packs) step(k, i);
  if constexpr (!(is_whole<P> || ...))
    for (; k < packs; k += size) step(k, -1);
}

template <class F, class... P>
FORGE_INLINE void each_of_rows(int n, int worker, int size, const F& f, const P&... p) {
  if constexpr ((is_whole<P> || ...)) {
    each_pack<true>(n, worker, size, f, p...);
  } else {
    if (n % pack_width<P...>() == 0 && (aligned(Access<P>::from(p)) && ...))
      each_pack<true>(n, worker, size, f, p...);
    else
      each_pack<false>(n, worker, size, f, p...);
  }
}

// The row of f(v…), in registers.
template <class T, class F, class... P>
FORGE_INLINE Row<T, 1, true> computed_row(int n, int worker, int size, const F& f, const P&... p) {
  Row<T, 1, true> row;
  row.data = nullptr;
  each_of_rows(
      n, worker, size, [&](T& result, const auto&... v) { result = f(v...); }, Computed<T>{row}, p...);
  return row;
}

}  // namespace device_detail
}  // namespace forge

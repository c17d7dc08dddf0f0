#include "kernels/attention/attention_tiles.hpp"

#include <limits>

#include "device/isa.hpp"
#include "kernels/attention/attention_simd.hpp"

namespace forge {

namespace {

using namespace attention_simd;

constexpr std::int64_t tile = attention_tile;

// ---- products
// ---------------------------------------------------------------------------------------------------------

template <class L, int rows, int vectors, bool a_by_rows, class A>
FORGE_LANES void product_block(const TileProduct<A>& p, std::int64_t row, std::int64_t lane) {
  constexpr int w = L::width;
  typename L::Vec sum[rows][vectors], factor;
  A* c = p.c + row * p.ldc + lane;
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) {
    if (p.keep) load<L>(factor, p.keep + lane + v * w);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      sum[r][v] = typename L::Vec{};
      if (!p.keep) continue;
      load<L>(sum[r][v], c + r * p.ldc + v * w);
      sum[r][v] *= factor;
    }
  }
  const A* a = a_by_rows ? p.a + row * p.lda : p.a + row;
  const A* b = p.b + lane;
  const std::int64_t lda = p.lda, ldb = p.ldb, k = p.k;
  for (std::int64_t i = 0; i < k; ++i) {
    typename L::Vec x[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) load<L>(x[v], b + i * ldb + v * w);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const A scalar = a_by_rows ? a[r * lda + i] : a[i * lda + r];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[r][v] += x[v] * scalar;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) store<L>(sum[r][v], c + r * p.ldc + v * w);
  }
}

template <class L, int vectors, bool a_by_rows, class A>
FORGE_LANES void product_panel(const TileProduct<A>& p, std::int64_t lane) {
  constexpr int rows = vectors > 2 ? 4 : L::accumulators / 2;
  std::int64_t r = 0;
  for (; r + rows <= p.m; r += rows) product_block<L, rows, vectors, a_by_rows>(p, r, lane);
  for (; r + rows / 2 <= p.m; r += rows / 2) product_block<L, rows / 2, vectors, a_by_rows>(p, r, lane);
  for (; r < p.m; ++r) product_block<L, 1, vectors, a_by_rows>(p, r, lane);
}

template <class L, bool a_by_rows, class A>
FORGE_LANES void product(const TileProduct<A>* p) {
  const std::int64_t vectors = p->lanes / L::width;
  std::int64_t v = 0;
  for (; v + L::panel <= vectors; v += L::panel) product_panel<L, L::panel, a_by_rows>(*p, v * L::width);
  for (; v + 2 <= vectors; v += 2) product_panel<L, 2, a_by_rows>(*p, v * L::width);
  for (; v < vectors; ++v) product_panel<L, 1, a_by_rows>(*p, v * L::width);
}

template <class L>
FORGE_LANES void product_rows(const TileProduct<typename L::Scalar>* p) {
  product<L, true>(p);
}
template <class L>
FORGE_LANES void product_columns(const TileProduct<typename L::Scalar>* p) {
  product<L, false>(p);
}

// ---- copies
// -----------------------------------------------------------------------------------------------------------

template <class L, class T, class A>
FORGE_LANES void pack(const T* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, A factor, A* to,
                      std::int64_t ld) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t c = 0;
    for (; c + L::width <= columns; c += L::width) {
      typename L::Vec x;
      load<L>(x, from + r * pitch + c);
      x *= factor;
      store<L>(x, to + r * ld + c);
    }
    for (; c < columns; ++c) to[r * ld + c] = factor * static_cast<A>(from[r * pitch + c]);
    for (; c < ld; ++c) to[r * ld + c] = A(0);
  }
}

template <class L, class T, class A>
FORGE_LANES void pack_transposed(const T* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, A factor,
                                 A* to) {
  constexpr int w = L::width;
  const std::int64_t whole_columns = columns / w * w;
  for (std::int64_t r = 0; r < tile; r += w) {
    if (r + w <= rows) {
      for (std::int64_t c = 0; c < whole_columns; c += w) {
        typename L::Vec x[w];
        for (int i = 0; i < w; ++i) load<L>(x[i], from + (r + i) * pitch + c);
        transpose<L>(x);
        for (int i = 0; i < w; ++i) {
          x[i] *= factor;
          store<L>(x[i], to + (c + i) * tile + r);
        }
      }
    }
    for (std::int64_t c = r + w <= rows ? whole_columns : 0; c < columns; ++c)
      for (std::int64_t i = r; i < r + w; ++i)
        to[c * tile + i] = i < rows ? factor * static_cast<A>(from[i * pitch + c]) : A(0);
  }
}

template <class L, class T, class A>
FORGE_LANES void unpack_transposed(const A* from, std::int64_t rows, std::int64_t columns, const A* factor, T* to,
                                   std::int64_t pitch) {
  constexpr int w = L::width;
  const std::int64_t whole_columns = columns / w * w;
  for (std::int64_t r = 0; r < rows; r += w) {
    const bool whole = r + w <= rows;
    if (whole) {
      for (std::int64_t c = 0; c < whole_columns; c += w) {
        typename L::Vec x[w];
        for (int i = 0; i < w; ++i) load<L>(x[i], from + (c + i) * tile + r);
        transpose<L>(x);
        for (int i = 0; i < w; ++i) {
          x[i] *= factor[r + i];
          store<L>(x[i], to + (r + i) * pitch + c);
        }
      }
    }
    for (std::int64_t i = r; i < (whole ? r + w : rows); ++i)
      for (std::int64_t c = whole ? whole_columns : 0; c < columns; ++c)
        to[i * pitch + c] = static_cast<T>(factor[i] * from[c * tile + i]);
  }
}

template <class L, class A>
FORGE_LANES void add(const A* from, std::int64_t ld, std::int64_t rows, std::int64_t columns, A* to,
                     std::int64_t pitch) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t c = 0;
    for (; c + L::width <= columns; c += L::width) {
      typename L::Vec x, y;
      load<L>(x, from + r * ld + c);
      load<L>(y, to + r * pitch + c);
      y += x;
      store<L>(y, to + r * pitch + c);
    }
    for (; c < columns; ++c) to[r * pitch + c] += from[r * ld + c];
  }
}

template <class L, class T, class A>
FORGE_LANES void convert_row(const A* from, std::int64_t columns, T* to) {
  std::int64_t c = 0;
  for (; c + L::width <= columns; c += L::width) {
    typename L::Vec x;
    load<L>(x, from + c);
    store<L>(x, to + c);
  }
  for (; c < columns; ++c) to[c] = static_cast<T>(from[c]);
}

// ---- mask and dropout
// -------------------------------------------------------------------------------------------------

// In bits, because g++ 12 takes comparisons of wide integer vectors apart into scalars.
template <class L, bool queries_in_lanes, class A>
FORGE_LANES void mask(A* scores, std::int64_t rows, std::int64_t lanes, const TilePlaces<A>* of_rows,
                      const TilePlaces<A>* of_lanes, std::int64_t limit) {
  using Bits = typename L::Bits;
  using Int = typename L::Int;
  using Unsigned = std::make_unsigned_t<Int>;
  typename L::Vec infinite;
  fill<L>(infinite, -std::numeric_limits<A>::infinity());
  const Bits hidden = reinterpret_cast<Bits>(infinite);
  for (std::int64_t lane = 0; lane < lanes; lane += L::width) {
    const Bits position = *reinterpret_cast<const Bits*>(of_lanes->positions + lane);
    const Bits document = *reinterpret_cast<const Bits*>(of_lanes->documents + lane);
    for (std::int64_t r = 0; r < rows; ++r) {
      Bits& x = *reinterpret_cast<Bits*>(scores + r * tile + lane);
      const auto p = static_cast<Unsigned>(of_rows->positions[r]);
      const Bits distance = queries_in_lanes ? position - p : p - position;
      const Bits other = document ^ static_cast<Unsigned>(of_rows->documents[r]);
      // The sign is set where distance < 0 or distance > limit, or where the documents differ.
      const Bits signs = distance | (static_cast<Unsigned>(limit) - distance) | other | -other;
      const Bits unseen = reinterpret_cast<Bits>(reinterpret_cast<typename L::IntVec>(signs) >> (8 * sizeof(Int) - 1));
      x = (x & ~unseen) | (hidden & unseen);
    }
  }
}

template <class L>
FORGE_LANES void mask_queries_in_lanes(typename L::Scalar* scores, std::int64_t rows, std::int64_t lanes,
                                       const TilePlaces<typename L::Scalar>* of_rows,
                                       const TilePlaces<typename L::Scalar>* of_lanes, std::int64_t limit) {
  mask<L, true>(scores, rows, lanes, of_rows, of_lanes, limit);
}
template <class L>
FORGE_LANES void mask_keys_in_lanes(typename L::Scalar* scores, std::int64_t rows, std::int64_t lanes,
                                    const TilePlaces<typename L::Scalar>* of_rows,
                                    const TilePlaces<typename L::Scalar>* of_lanes, std::int64_t limit) {
  mask<L, false>(scores, rows, lanes, of_rows, of_lanes, limit);
}

// ---- softmax
// ----------------------------------------------------------------------------------------------------------

template <class L, int vectors, class A>
FORGE_LANES void softmax_panel(A* scores, std::int64_t keys, A* largest, A* total, A* keep, const A* dropout) {
  using Vec = typename L::Vec;
  constexpr int w = L::width;
  Vec before[vectors], peak[vectors], sum[vectors], none;
  fill<L>(none, -std::numeric_limits<A>::infinity());
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) {
    load<L>(before[v], largest + v * w);
    peak[v] = before[v];
  }
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      Vec x;
      load<L>(x, scores + j * tile + v * w);
      peak[v] = x > peak[v] ? x : peak[v];
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) {
    store<L>(peak[v], largest + v * w);
    peak[v] = peak[v] == none ? Vec{} : peak[v];  // nothing seen yet: 2^(−Inf − 0) = 0
    before[v] -= peak[v];
    exp2<L>(before[v]);
    store<L>(before[v], keep + v * w);
    sum[v] = Vec{};
  }
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      Vec x;
      load<L>(x, scores + j * tile + v * w);
      x -= peak[v];
      exp2<L>(x);
      sum[v] += x;
      if (dropout) {
        Vec d;
        load<L>(d, dropout + j * tile + v * w);
        x *= d;
      }
      store<L>(x, scores + j * tile + v * w);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < vectors; ++v) {
    Vec x;
    load<L>(x, total + v * w);
    x = x * before[v] + sum[v];
    store<L>(x, total + v * w);
  }
}

template <class L, class A>
FORGE_LANES void softmax(A* scores, std::int64_t keys, std::int64_t lanes, A* largest, A* total, A* keep,
                         const A* dropout) {
  std::int64_t i = 0;
  for (; i + 4 * L::width <= lanes; i += 4 * L::width)
    softmax_panel<L, 4>(scores + i, keys, largest + i, total + i, keep + i, dropout ? dropout + i : nullptr);
  for (; i < lanes; i += L::width)
    softmax_panel<L, 1>(scores + i, keys, largest + i, total + i, keep + i, dropout ? dropout + i : nullptr);
}

template <class L, class A>
FORGE_LANES void softmax_backward(A* scores, A* d_p, std::int64_t queries, std::int64_t lanes, const A* lse,
                                  const A* delta, const A* dropout) {
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t lane = 0; lane < lanes; lane += L::width) {
      const std::int64_t at = i * tile + lane;
      typename L::Vec p, d, kept;
      load<L>(p, scores + at);
      load<L>(d, d_p + at);
      p -= lse[i];
      exp2<L>(p);
      if (dropout) {
        load<L>(kept, dropout + at);
        d = p * (d * kept - delta[i]);
        p *= kept;
      } else {
        d = p * (d - delta[i]);
      }
      store<L>(d, d_p + at);
      store<L>(p, scores + at);
    }
  }
}

// ---- one table a vector path
// ------------------------------------------------------------------------------------------

// A body, compiled for each vector path.
template <auto body, class Signature = decltype(body)>
struct Compiled;
template <auto body, class... Args>
struct Compiled<body, void (*)(Args...)> {
  __attribute__((flatten)) static void plain(Args... args) { body(args...); }
#if defined(__x86_64__)
  __attribute__((flatten)) FORGE_TARGET_AVX2 static void avx2(Args... args) {
    body(args...);
  }
  __attribute__((flatten)) FORGE_TARGET_AVX512 static void avx512(Args... args) {
    body(args...);
  }
#endif
};

#define FORGE_TILE_TABLE(path, L)                                                                                     \
  TileFunctions<T> {                                                                                                  \
    Compiled<&product_rows<L>>::path, Compiled<&product_columns<L>>::path, Compiled<&pack<L, T, A>>::path,            \
        Compiled<&pack_transposed<L, T, A>>::path, Compiled<&unpack_transposed<L, T, A>>::path,                       \
        Compiled<&add<L, A>>::path, Compiled<&convert_row<L, T, A>>::path, Compiled<&mask_queries_in_lanes<L>>::path, \
        Compiled<&mask_keys_in_lanes<L>>::path, Compiled<&softmax<L, A>>::path,                                       \
        Compiled<&softmax_backward<L, A>>::path                                                                       \
  }

}  // namespace

template <class T>
TileFunctions<T> tile_functions() {
  using A = acc_t<T>;
#if defined(__x86_64__)
  using Wide = Lanes<A, 64, 16>;
  using Middle = Lanes<A, 32, 8>;
  if (host_isa() == Isa::avx512) return FORGE_TILE_TABLE(avx512, Wide);
  if (host_isa() == Isa::avx2) return FORGE_TILE_TABLE(avx2, Middle);
#endif
  using Narrow = Lanes<A, 16, 8>;
  return FORGE_TILE_TABLE(plain, Narrow);
}

FORGE_INSTANTIATE_FUNCTION(tile_functions);

}  // namespace forge

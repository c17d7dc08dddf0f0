#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/types.hpp"

// Host attention's work on one tile. Tiles of scores are attention_tile x attention_tile; one side of a tile lies in
// the vector lanes: queries in the forward pass, keys in the backward pass. "Transposed" means (head size, lanes): unit
// stride over the lanes, so that every product below is a sum of broadcast scalars times vectors, and nothing is
// reduced across lanes.

namespace forge {

inline constexpr std::int64_t attention_tile = 64;

// Bytes of a thread's tiles, with heads of D numbers of q and k, and Dv of v: in backward, which has more of them.
template <class A>
constexpr std::size_t attention_thread_bytes(std::int64_t D, std::int64_t Dv) {
  const std::int64_t padded = (D + 15) / 16 * 16;
  return static_cast<std::size_t>(attention_tile * (3 * D + 3 * Dv + 2 * padded + 4 * attention_tile + 3)) * sizeof(A);
}

// c(m, lanes) = keep(lanes) ∘ c + a(m, k) · b(k, lanes); c is not read where keep is null. lanes: a multiple of the
// widest vector (16 float, 8 double). Element (i, j) of a stands at a[i·lda + j], or a[j·lda + i] in product_columns.
template <class A>
struct TileProduct {
  std::int64_t m, lanes, k;
  const A* a;
  std::int64_t lda;
  const A* b;
  std::int64_t ldb;
  A* c;
  std::int64_t ldc;
  const A* keep;
};

// Positions and documents of the rows and lanes of a tile, padded to attention_tile, in integers as wide as A.
template <class A>
struct TilePlaces {
  using Int = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;
  alignas(64) Int positions[attention_tile];
  alignas(64) Int documents[attention_tile];
};

// The functions of one vector path. Scores are in units of log 2 (multiplied by log2 e), so that e^x is 2^x.
template <class T>
struct TileFunctions {
  using A = acc_t<T>;

  void (*product_rows)(const TileProduct<A>*);
  void (*product_columns)(const TileProduct<A>*);
  // to(r, c) = factor · from(r, c); columns [columns, ld) of `to` become 0.
  void (*pack)(const T* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, A factor, A* to,
               std::int64_t ld);
  // to(c, r) = factor · from(r, c) with rows of attention_tile lanes; lanes from `rows` on become 0.
  void (*pack_transposed)(const T* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, A factor, A* to);
  // to(r, c) = factor(r) · from(c, r), for the first `rows` lanes.
  void (*unpack_transposed)(const A* from, std::int64_t rows, std::int64_t columns, const A* factor, T* to,
                            std::int64_t pitch);
  // to(r, c) += from(r, c).
  void (*add)(const A* from, std::int64_t ld, std::int64_t rows, std::int64_t columns, A* to, std::int64_t pitch);
  // to(c) = from(c), rounded to T.
  void (*convert_row)(const A* from, std::int64_t columns, T* to);
  // scores(row, lane) = −Inf where the query does not see the key. limit: window − 1, or INT32_MAX.
  void (*mask_queries_in_lanes)(A* scores, std::int64_t keys, std::int64_t lanes, const TilePlaces<A>* k,
                                const TilePlaces<A>* q, std::int64_t limit);
  void (*mask_keys_in_lanes)(A* scores, std::int64_t queries, std::int64_t lanes, const TilePlaces<A>* q,
                             const TilePlaces<A>* k, std::int64_t limit);
  // Online softmax (Milakov & Gimelshein 2018), lanes are queries: largest ← max(largest, scores), scores ←
  // 2^(scores − largest), keep = 2^(old largest − largest), total ← keep · total + Σ scores. Then scores ∘ dropout,
  // unless that is null.
  void (*softmax)(A* scores, std::int64_t keys, std::int64_t lanes, A* largest, A* total, A* keep, const A* dropout);
  // Lanes are keys: p = 2^(scores − lse), d_scores = p ∘ (d_p ∘ dropout − delta), scores ← p ∘ dropout, d_p ←
  // d_scores. dropout may be null.
  void (*softmax_backward)(A* scores, A* d_p, std::int64_t queries, std::int64_t lanes, const A* lse, const A* delta,
                           const A* dropout);
};

// The functions of the path that host_isa() chose.
template <class T>
TileFunctions<T> tile_functions();

}  // namespace forge

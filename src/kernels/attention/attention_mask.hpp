#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "core/random.hpp"
#include "kernels/attention/attention.hpp"

// The two rules of attention.hpp that every kernel and the reference share: who sees whom, and which probabilities
// dropout removes.

namespace forge {

// Whether a query sees a key. window 0: no limit.
FORGE_INLINE bool attention_visible(std::int64_t position_q, std::int64_t position_k, std::int32_t document_q,
                                    std::int32_t document_k, std::int64_t window) {
  return position_k <= position_q && (window == 0 || position_q - position_k < window) && document_q == document_k;
}

// The key of all draws of a head; `head` counts the heads of the whole model.
FORGE_INLINE std::uint64_t attention_dropout_key(std::uint64_t key, std::int64_t head) {
  return mix(key, static_cast<std::uint64_t>(head));
}

// Whether dropout keeps a probability: uniform in (0, 1) from words 0 and 1 of philox(head_key, sample,
// position_q · 2^32 + position_k), kept where it is >= rate. A kept probability is divided by 1 − rate.
FORGE_INLINE bool attention_kept(std::uint64_t head_key, std::int64_t sample, std::int32_t position_q,
                                 std::int32_t position_k, double rate) {
  const std::uint64_t pair = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(position_q)) << 32) |
                             static_cast<std::uint32_t>(position_k);
  const auto words = philox(head_key, static_cast<std::uint64_t>(sample), pair);
  return uniform(words[0], words[1]) >= rate;
}

// Positions and documents of a tile, as ranges: enough to skip a tile that nobody sees and to leave the mask out where
// all see all.
struct AttentionSpan {
  std::int32_t first_position = INT32_MAX, last_position = INT32_MIN;
  std::int32_t first_document = INT32_MAX, last_document = INT32_MIN;
};

enum class Visibility { none, some, all };

// The visibility of a tile of keys for a tile of queries. `none` and `all` are certain, `some` is not.
FORGE_INLINE Visibility attention_visibility(const AttentionSpan& q, const AttentionSpan& k, std::int64_t window) {
  const std::int64_t nearest = static_cast<std::int64_t>(q.first_position) - k.last_position;
  const std::int64_t farthest = static_cast<std::int64_t>(q.last_position) - k.first_position;
  if (farthest < 0 || (window > 0 && nearest >= window)) return Visibility::none;
  if (q.last_document < k.first_document || k.last_document < q.first_document) return Visibility::none;
  const bool one_document = q.first_document == q.last_document && k.first_document == k.last_document;
  if (nearest >= 0 && (window == 0 || farthest < window) && one_document) return Visibility::all;
  return Visibility::some;
}

}  // namespace forge

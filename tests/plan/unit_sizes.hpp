#pragma once

#include <cstdint>
#include <vector>

#include "config/deck.hpp"

namespace forge::test {

// Elements of a unit's flat buffer on a rank: stretches that start at multiples of 64, all together a multiple of 64
// for each of the ranks that share its state (docs/parallelism.md, "Data parallelism and ZeRO").
struct UnitSize {
  enum class Kind { token_table, position_table, block, experts, output, norm } kind;
  std::int64_t elements = 0;
  std::int64_t replicated_begin = 0, replicated_end = 0;  // the same on every tp rank
  std::int64_t copied_begin = 0, copied_end = 0;          // key and value heads that tp neighbours share
  bool matrices = true;                                   // not of vectors alone
};

// Layers [first, end) with the tables of the stages that they are on, in the order of the forward pass.
struct Held {
  std::int64_t first_layer = 0, end_layer = 0;
  bool embedding = false, head = false;
};
bool has_experts(const ModelDeck& model, std::int64_t layer);
// `expert_shards`: ranks that share the state of experts; others share dp_shard · cp ways.
std::vector<UnitSize> unit_sizes(const Deck& deck, const std::vector<Held>& held, std::int64_t expert_shards);
// Weights of products in FP8, but experts', whose one scale comes from the numbers at hand.
std::int64_t weights_with_one_scale(const Deck& deck, const std::vector<Held>& held);

}  // namespace forge::test

#pragma once

#include <vector>

#include "model/parameters.hpp"

namespace forge {

// QK-clip (Kimi K2, arXiv 2507.20534): of a head whose largest attention logit of a step was S > τ, the logits are
// scaled by γ = τ / S through the weights that make its query and key. With K heads of keys, the one that a group of
// query heads reads is scaled by √γ of the smallest γ of its group, and each query head by its γ over that. Of latent
// attention, where a head has a key of its own but for the rotated part, which all share: √γ of the parts that aren't
// rotated, γ of the query's rotated part, and the shared key stays.

enum class HeadFactor : int { query, query_whole, key, none };

// Rows of a tensor that stand for heads, one behind the other: of each its first `inner` rows, then the others.
struct ClippedRows {
  std::int64_t begin = 0, heads = 0, head_rows = 0, inner = 0;
  HeadFactor of_inner = HeadFactor::none, of_outer = HeadFactor::none;
};
// Of a tensor of a checkpoint, by the model without tensor parallelism; biases, too. Empty: QK-clip leaves it.
std::vector<ClippedRows> clipped_rows(const ModelSpec& spec, const Parameter& parameter);

}  // namespace forge

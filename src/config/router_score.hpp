#pragma once

#include <array>

// The scores that a router computes from its logits, for the deck's keys and the kernels alike. A new score stands here
// and in kernels/experts/score_functions.hpp.

namespace forge {

enum class ScoreKind : int {
  softmax,        // choice and weights from softmax(logits) over all experts (Mixtral, Qwen3-MoE, DeepSeek-V2)
  softmax_after,  // choice from logits, weights = softmax over the chosen ones
  sigmoid         // choice and weights from sigmoid(logits) (DeepSeek-V3)
};

// The deck's words for them, in this order, and the line of `forge help`.
inline constexpr std::array router_score_words{"softmax", "softmax_after", "sigmoid"};
inline constexpr const char* router_score_doc =
    "an expert's weight: softmax of the logits over all experts or over the chosen ones, or sigmoid of its logit";

// Whether the scores of a row are a distribution over all experts; else each is a function of its own logit, and they
// are divided by their sum where one is needed.
constexpr bool sums_to_one(ScoreKind kind) {
  return kind == ScoreKind::softmax || kind == ScoreKind::softmax_after;
}

// Whether logits choose, and only the chosen ones weigh; the scores then serve the auxiliary loss alone.
constexpr bool chosen_by_logit(ScoreKind kind) {
  return kind == ScoreKind::softmax_after;
}

// The score of a group of experts where only some groups may be chosen: the sum of its two best scores (DeepSeek-V3),
// or the best (DeepSeek-V2).
enum class GroupScoreKind : int { top2_sum, max };

}  // namespace forge

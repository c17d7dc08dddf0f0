#pragma once

#include <string>
#include <vector>

#include "model/parameters.hpp"

namespace forge {

// Floating-point operations of one token, forward; a multiply-add counts two. Backward takes twice as many.
struct FlopsLine {
  std::string part;
  double forward;
};
// FLOPs by part of the model. Attention counts the keys that a query of a T-token sample sees on average (causal,
// window); the embedding look-up counts nothing; experts count those that the token goes to; multi-token prediction its
// own uses of the head, too. Norms, rotations and activations are left out, as everybody's MFU does.
std::vector<FlopsLine> forward_flops_per_token(const ModelSpec& spec, std::int64_t sequence_tokens);

// FLOPs of adapters, forward, of experts only where the token goes there; 0: there are none.
double adapter_flops_per_token(const ModelSpec& spec, const std::vector<Unit>& units);

// FLOPs forward and backward, without recomputation (a pair's second run of the head counts as such): mfu's figure.
// Frozen units, among all of the model's `units`, have no gradients, and below the lowest trained layer there is no
// backward pass.
double training_flops_per_token(const ModelSpec& spec, const std::vector<Unit>& units, std::int64_t sequence_tokens);

// Mean number of keys seen by the T queries of a sample.
double mean_keys(std::int64_t sequence_tokens, std::int64_t window);

}  // namespace forge

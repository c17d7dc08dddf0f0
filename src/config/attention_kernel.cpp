#include "config/attention_kernel.hpp"

#include "config/deck.hpp"
#include "core/to_size.hpp"

namespace forge {

std::string asked_text(AttentionKernel asked) {
  return std::string("FORGE_ATTENTION = ") + attention_kernel_words[to_size(asked)];
}

AttentionKernel chosen_attention(const Deck& deck, AttentionKernel asked) {
  if (asked != AttentionKernel::automatic) return asked;
  const bool has_them = deck.train.computes_in_bf16() && deck.model.attention_soft_cap == 0;
  return has_them ? AttentionKernel::tensor_cores : AttentionKernel::cuda_cores;
}

}  // namespace forge

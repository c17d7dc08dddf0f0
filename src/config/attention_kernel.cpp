#include "config/attention_kernel.hpp"

#include "config/deck.hpp"

namespace forge {

AttentionKernel chosen_attention(const Deck& deck) {
  if (deck.machine.attention != AttentionKernel::automatic) return deck.machine.attention;
  const bool has_them = deck.train.computes_in_bf16() && deck.model.attention_soft_cap == 0;
  return has_them ? AttentionKernel::tensor_cores : AttentionKernel::cuda_cores;
}

}  // namespace forge

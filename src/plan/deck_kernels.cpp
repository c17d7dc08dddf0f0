#include "config/attention_kernel.hpp"
#include "config/grouped_products.hpp"
#include "model/cudnn_attention.hpp"
#include "model/fp8_codes.hpp"
#include "plan/step_cost.hpp"

// Which kernels a deck takes on a machine.

namespace forge {

std::string_view attention_kernel(const Machine& machine, const Deck& deck) {
  if (!machine.program.attention_kernel.empty()) return machine.program.attention_kernel;
  if (machine.cores_per_node > 0) return "processor";
  const AttentionKernel chosen = chosen_attention(deck);
  if (!on_tensor_cores(chosen)) return attention_kernel_words[to_size(chosen)];
  if (!cudnn_computes(deck)) return attention_kernel_words[to_size(AttentionKernel::tensor_cores)];
  // As forge calls it, where that was measured, else what others have published of it.
  const std::string_view own = attention_kernel_words[to_size(AttentionKernel::cudnn)];
  return machine.rates(DType::bf16).attention.contains(own) ? own : "library";
}

bool takes_cutlass_on(const Machine& machine, const Deck& deck) {
  return takes_cutlass(deck) && (machine.has_cutlass || deck.machine.grouped == GroupedProducts::cutlass);
}

BufferContext buffers_on(const Machine& machine, const RunSetup& setup) {
  BufferContext buffers = setup.buffers;
  buffers.cutlass = takes_cutlass_on(machine, setup.deck);
  buffers.fp8.codes = multiplies_codes(setup.deck, machine.capability);
  return buffers;
}

}  // namespace forge

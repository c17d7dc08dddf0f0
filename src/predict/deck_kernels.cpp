#include "fp8/codes.hpp"
#include "model/cudnn_attention.hpp"
#include "predict/step_cost.hpp"

// Which kernels a deck takes on a machine.

namespace forge {

std::string_view attention_kernel(const Machine& machine, const Deck& deck, const BufferContext& buffers) {
  if (!machine.program.attention_kernel.empty()) return machine.program.attention_kernel;
  if (machine.cores_per_node > 0) return "processor";
  const auto word_of = [](AttentionKernel kernel) { return std::string_view(attention_kernel_words[to_size(kernel)]); };
  if (!takes_cudnn(deck, buffers, machine.prefers_cudnn))
    return word_of(on_tensor_cores(chosen_attention(deck, buffers.kernels.attention)) ? AttentionKernel::tensor_cores
                                                                                      : AttentionKernel::cuda_cores);
  // As forge calls it, where that was measured, else what others have published of it.
  const std::string_view own = word_of(AttentionKernel::cudnn);
  return machine.rates(DType::bf16).attention.contains(own) ? own : "library";
}

bool takes_cutlass_on(const Machine& machine, const Deck& deck, GroupedProducts asked) {
  return takes_cutlass(deck, asked) && (machine.has_cutlass || asked == GroupedProducts::cutlass);
}

BufferContext buffers_on(const Machine& machine, const RunSetup& setup) {
  BufferContext buffers = setup.buffers;
  buffers.cutlass = takes_cutlass_on(machine, setup.deck, buffers.kernels.grouped);
  buffers.rounding.codes = multiplies_codes(setup.deck, machine.capability);
  return buffers;
}

}  // namespace forge

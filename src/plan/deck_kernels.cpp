#include "config/keys.hpp"
#include "core/error.hpp"
#include "model/cudnn_attention.hpp"
#include "model/fp8_codes.hpp"
#include "plan/step_cost.hpp"

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
  return buffers;
}

void require_products_of_codes(const Machine& machine, const Deck& deck) {
  if (deck.machine.fp8_products != Fp8Products::cublaslt) return;
  if (fp8_scaling(deck.train.fp8_recipe) == Fp8Scaling::tensor) return;
  if (!machine.rates(DType::bf16).cublaslt_has_one_scale) return;
  throw BadInput(
      "machine.fp8_products = cublaslt with train.fp8_recipe = " + value_text(*find_key("train", "fp8_recipe"), deck) +
      " on the machine " + machine.name +
      ", where cuBLASLt has one scale for a whole operand (cublaslt_scales of its file); legal: tensor_cores, "
      "or fp8_recipe current or delayed");
}

}  // namespace forge

#pragma once

#include <array>
#include <string>
#include <string_view>

#include "config/attention_kernel.hpp"
#include "config/report.hpp"

namespace forge {

struct Deck;
enum class Fp8Carrier;

// "FORGE_ATTENTION = cudnn"
std::string asked_text(AttentionKernel);
// `asked`, or for automatic forge's own kernel for a deck: never automatic. In place of tensor_cores that automatic
// came to, a run may take cuDNN's (takes_cudnn() of model/cudnn_attention.hpp).
AttentionKernel chosen_attention(const Deck&, AttentionKernel asked);

// The kernels for products of routed experts' rows on a GPU, but for generation. The CPU build has its own.
enum class GroupedProducts : int {
  automatic,     // cutlass or else tensor_cores where they compute the deck's products and its experts are small, else
                 // library
  library,       // every type: a product for each expert
  tensor_cores,  // bf16 alone: one launch for all experts
  cutlass        // bf16 alone: the same by CUTLASS's kernels for sm_90 (kernels/experts/grouped_cutlass.hpp)
};

// The words that FORGE_GROUPED has for them, in this order.
inline constexpr std::array grouped_products_words{"automatic", "library", "tensor_cores", "cutlass"};
// "FORGE_GROUPED = cutlass"
std::string asked_text(GroupedProducts);

// `asked`, or the kernels that automatic comes to for a deck: never automatic. In place of tensor_cores that automatic
// came to, a run takes CUTLASS's kernels where its build and GPU have them.
GroupedProducts chosen_grouped_products(const Deck&, GroupedProducts asked);
// Whether it takes CUTLASS's kernels where there are some.
bool takes_cutlass(const Deck&, GroupedProducts asked);

// Kernels of a run on a GPU that a test or a benchmark asks for. No key of a deck names them: automatic comes to the
// fastest one that is legal and there.
struct KernelChoice {
  AttentionKernel attention = AttentionKernel::automatic;
  GroupedProducts grouped = GroupedProducts::automatic;
};

// The kernels by the words that FORGE_ATTENTION and FORGE_GROUPED have; nullptr or "": automatic. Throws BadInput where
// there is no such word.
KernelChoice kernel_choice(const char* attention, const char* grouped);
// The kernels by the environment, which is read once.
const KernelChoice& asked_kernels();
// The type of all that FP8 doesn't round: bf16, or in builds with tests the word that FORGE_FP8_CARRIER has. Throws
// BadInput where there is no such word.
Fp8Carrier asked_fp8_carrier();

// The variables of the environment that these read.
inline constexpr std::string_view kernel_variables[] = {"FORGE_ATTENTION", "FORGE_FP8_CARRIER", "FORGE_GROUPED"};

// Adds the deck's features that a kernel asked for by name doesn't compute.
void check_kernels(const Deck& deck, const KernelChoice& asked, Report& report);

}  // namespace forge

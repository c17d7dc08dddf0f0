#pragma once

#include <array>
#include <string>

namespace forge {

// What multiplies the rows of routed experts on a GPU, but for generation. The CPU build has its own.
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

struct Deck;
// What is asked for, and what automatic comes to for a deck: never automatic. In place of tensor_cores that automatic
// came to, a run takes CUTLASS's kernels where its build and GPU have them.
GroupedProducts chosen_grouped_products(const Deck&, GroupedProducts asked);
// Whether it takes CUTLASS's kernels where there are some.
bool takes_cutlass(const Deck&, GroupedProducts asked);

}  // namespace forge

#include "config/grouped_products.hpp"

#include "config/deck.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Weights of an expert's matrix. An H200 multiplied matrices of 1.6 million in 56 % of the library's time in one
// launch, of 59 million in as much or a tenth more (docs/performance.md, "Experts' products in one launch").
constexpr std::int64_t large_matrix = 1 << 24;

}  // namespace

std::string asked_text(GroupedProducts asked) {
  return std::string("FORGE_GROUPED = ") + grouped_products_words[to_size(asked)];
}

GroupedProducts chosen_grouped_products(const Deck& deck, GroupedProducts asked) {
  if (asked != GroupedProducts::automatic) return asked;
  const bool has_them = deck.train.computes_in_bf16() && deck.model.experts > 0;
  const bool small = deck.model.width * deck.model.expert_ffn < large_matrix;
  return has_them && small ? GroupedProducts::tensor_cores : GroupedProducts::library;
}

bool takes_cutlass(const Deck& deck, GroupedProducts asked) {
  const bool automatic = asked == GroupedProducts::automatic;
  return asked == GroupedProducts::cutlass || (automatic && deck.machine.workspace_mib > 0 &&
                                               chosen_grouped_products(deck, asked) != GroupedProducts::library);
}

}  // namespace forge

#include "config/grouped_products.hpp"

#include "config/deck.hpp"

namespace forge {

namespace {

// Weights of an expert's matrix. An H200 multiplied matrices of 1.6 million twice as fast in one launch as by the
// library, of 59 million a fifth slower (docs/performance.md, "Experts' products in one launch").
constexpr std::int64_t large_matrix = 1 << 24;

}  // namespace

GroupedProducts chosen_grouped_products(const Deck& deck) {
  if (deck.machine.grouped != GroupedProducts::automatic) return deck.machine.grouped;
  const bool has_them = deck.train.computes_in_bf16() && deck.model.experts > 0;
  const bool small = deck.model.width * deck.model.expert_ffn < large_matrix;
  return has_them && small ? GroupedProducts::tensor_cores : GroupedProducts::library;
}

bool takes_cutlass(const Deck& deck) {
  const bool automatic = deck.machine.grouped == GroupedProducts::automatic;
  return deck.machine.grouped == GroupedProducts::cutlass ||
         (automatic && deck.machine.workspace_mib > 0 && chosen_grouped_products(deck) != GroupedProducts::library);
}

}  // namespace forge

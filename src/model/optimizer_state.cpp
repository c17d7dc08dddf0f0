#include "model/optimizer_state.hpp"

#include "config/optimizer_table.hpp"

namespace forge {

OptimizerState optimizer_state(const OptimizerDeck& deck, DType standard) {
  OptimizerState state;
  const DType type = deck.moments == StateType::bf16 ? DType::bf16 : standard;
  const auto add = [&](OptimizerName optimizer, KeptOf of) {
    for (const char* name : row_of(optimizer).state)
      if (name) state.push_back({name, type, of, row_of(optimizer).averages});
  };
  const OptimizerRow& row = row_of(deck.name);
  const bool whole = row.whole_matrices;
  add(deck.name, whole ? KeptOf::whole_matrices : row.factored() ? KeptOf::vectors : KeptOf::all);
  if (whole) add(OptimizerName::adamw, KeptOf::others);
  for (const char* name : {row.of_rows, row.of_columns})
    if (name) state.push_back({name, standard, KeptOf::lines});
  if (row.rotates) state.push_back({"rotated_state", standard, KeptOf::lines});
  return state;
}

}  // namespace forge

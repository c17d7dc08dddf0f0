#include "model/optimizer_state.hpp"

#include "config/optimizer_table.hpp"

namespace forge {

OptimizerState optimizer_state(const OptimizerDeck& deck, DType standard) {
  const OptimizerRow& row = row_of(deck.name);
  const DType moments = deck.moments == StateType::bf16 ? DType::bf16 : standard;
  OptimizerState state;
  for (const StateSpec& spec : row.states)
    state.push_back(
        {spec.name, spec.type == StoredAs::moments ? moments : standard, spec.of, spec.owner, row.averages});
  return state;
}

}  // namespace forge

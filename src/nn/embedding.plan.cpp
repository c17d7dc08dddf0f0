#include "nn/embedding.plan.hpp"

#include "model/unit_builder.hpp"

namespace forge {

Unit token_table_unit(const ModelSpec& s) {
  UnitBuilder unit(s, UnitKind::token_table, -1, "embedding");
  unit.add(Role::token_table, "tokens", unit.hf("model.embed_tokens.weight", "transformer.wte.weight"), {s.V(), s.C()},
           split_rows(), Initial::normal, unit.matrix_std());
  return unit.finish();
}

Unit position_table_unit(const ModelSpec& s) {
  UnitBuilder unit(s, UnitKind::position_table, -1, "embedding");
  unit.add(Role::position_table, "positions", unit.hf("model.embed_positions.weight", "transformer.wpe.weight"),
           {s.options.max_positions, s.C()}, Initial::normal, unit.matrix_std());
  return unit.finish();
}

void add_embedding_sends(Sends& sends, Pass pass) {
  sends.rows(pass == Pass::forward ? Collective::reduce_scatter : Collective::all_gather);
}

}  // namespace forge

#include "nn/embedding.plan.hpp"

namespace forge {

void list_embedding(Segments& list, Pass pass, bool positions, TrainedTables trained) {
  const std::int64_t C = list.spec.C();
  const bool dropout = list.spec.options.dropout > 0;
  if (pass == Pass::forward) {
    list.over_rows("embedding_forward", list.R, C, positions ? 2 : 1, 1);
    list.reduce_rows(C);
  }
  if (dropout) list.over_rows("dropout", list.S, C, 1, 1);
  if (pass == Pass::forward) return;
  if (trained.tokens) {
    list.gather_rows(C);
    list.over_rows("embedding_backward", list.R, C, 1, 0, 1, 1);
  }
  if (positions && trained.positions) list.over_rows("embedding_backward", list.S, C, 1, 0, 1, 1);
}

}  // namespace forge

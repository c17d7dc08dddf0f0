#include "nn/embedding.plan.hpp"

namespace forge {

void add_embedding_sends(Sends& sends, Pass pass) {
  sends.rows(pass == Pass::forward ? Collective::reduce_scatter : Collective::all_gather);
}

void add_embedding_operations(Operations& o, Pass pass) {
  const ModelSpec& s = o.spec;
  const bool positions = !s.rope(), dropout = s.options.dropout > 0;
  if (pass == Pass::forward) o.over_rows("embedding_forward", o.R, s.C(), positions ? 2 : 1, 1);
  if (dropout) o.over_rows("dropout", o.S, s.C(), 1, 1);
  if (pass == Pass::forward) return;
  o.over_rows("embedding_backward", o.R, s.C(), 1, 0, 1, 1);
  if (positions) o.over_rows("embedding_backward", o.S, s.C(), 1, 0, 1, 1);
}

}  // namespace forge

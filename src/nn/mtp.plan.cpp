#include "nn/mtp.plan.hpp"

namespace forge {

void add_mtp_sends(Sends& sends, Pass pass, bool recompute) {
  if (pass == Pass::backward_weight || recompute) return;
  add_embedding_sends(sends, pass);
}

void add_mtp_operations(Operations& o, Pass pass, bool recompute) {
  const std::int64_t C = o.spec.C();
  if (pass == Pass::backward_weight) return o.linear_backward_weight(o.S, C, 2 * C);
  if (pass == Pass::backward_input && !recompute) {
    o.linear_backward_input(o.S, C, 2 * C);
    add_norm_backward(o, o.S, C, 3, 1);
    add_norm_backward(o, o.S, C, 2, 1);
    return add_embedding_operations(o, Pass::backward_weight);
  }
  if (!recompute) add_embedding_operations(o, pass);
  add_norm_operations(o, Pass::forward, o.S, C);
  add_norm_operations(o, Pass::forward, o.S, C);
  if (!recompute) o.linear(o.S, C, 2 * C);
}

}  // namespace forge

#include "nn/mtp.plan.hpp"

namespace forge {

void list_mtp(Segments& list, Pass pass, bool recompute) {
  const std::int64_t C = list.spec.C();
  if (pass == Pass::backward_weight) return list.linear_backward_weight(list.S, C, 2 * C);
  if (recompute && !list.c.recompute.has(Recompute::norms)) return;
  if (pass == Pass::backward_input && !recompute) {
    list.linear_backward_input(list.S, C, 2 * C);
    list_norm_backward(list, list.S, C, 3, 1);
    list_norm_backward(list, list.S, C, 2, 1);
    return list_embedding(list, Pass::backward_weight, false);
  }
  if (!recompute) list_embedding(list, pass, false);
  list_norm(list, Pass::forward, list.S, C);
  list_norm(list, Pass::forward, list.S, C);
  if (!recompute) list.linear(list.S, C, 2 * C);
}

}  // namespace forge

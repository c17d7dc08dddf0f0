#include "nn/head.plan.hpp"

namespace forge {

void list_head(Segments& list, bool by_source) {
  const std::int64_t V = list.spec.V(), C = list.spec.C();
  const auto loss_bytes = static_cast<std::int64_t>(size_of(list.c.precision.accumulate));
  const bool caps = list.spec.options.logit_soft_cap > 0;
  list.gather_rows(C);
  for (std::int64_t begin = 0; begin < list.R; begin += list.c.head_chunk_rows) {
    const std::int64_t rows = std::min(list.c.head_chunk_rows, list.R - begin);
    list.linear_to_sums(rows, V, C);
    if (caps) list.over_rows("soft_cap", rows, V, 0, 0, 1, 1);
    if (list.c.tp > 1) list.over_rows("cross_entropy_statistics", rows, V, 0, 0, 1, 0);
    list.send(Group::tp, Collective::all_gather, 3 * rows, list.c.precision.accumulate);
    list.over_rows("cross_entropy", rows, V, 0, 1, 1, 0);
    if (caps) list.over_rows("soft_cap_backward", rows, V, 1, 1, 1, 0);
    list.over_rows("sum_into", rows, 1, 0, 0, 1, 0);  // the loss; of each source; z
    if (by_source && list.c.sources > 0) list.add(RowKernel{"sum_by_group", rows, 1, rows * (loss_bytes + 4), 0});
    list.over_rows("sum_into", rows, 1, 0, 0, 1, 0);
    list.linear_backward_input(rows, V, C);
    if (!list.frozen) list.linear_backward_weight(rows, V, C);
  }
  list.reduce_rows(C);
}

}  // namespace forge

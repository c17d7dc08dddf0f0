#include "nn/head.plan.hpp"

namespace forge {

void add_head_sends(Sends& sends) {
  const BufferContext& c = sends.c;
  sends.rows(Collective::all_gather);
  for (std::int64_t begin = 0; begin < c.microbatch.rows(); begin += c.head_chunk_rows)
    sends.add(Group::tp, Collective::all_gather, 3 * std::min(c.head_chunk_rows, c.microbatch.rows() - begin),
              c.precision.accumulate);
  sends.rows(Collective::reduce_scatter);
}

void add_head_operations(Operations& o) {
  const std::int64_t V = o.spec.V(), C = o.spec.C();
  for (std::int64_t begin = 0; begin < o.R; begin += o.c.head_chunk_rows) {
    const std::int64_t rows = std::min(o.c.head_chunk_rows, o.R - begin);
    o.linear_to_sums(rows, V, C);
    if (o.spec.options.logit_soft_cap > 0) o.over_rows("soft_cap", rows, V, 0, 0, 1, 1);
    o.over_rows("cross_entropy", rows, V, 0, 1, 1, 0);
    if (o.spec.options.logit_soft_cap > 0) o.over_rows("soft_cap_backward", rows, V, 1, 1, 1, 0);
    o.linear_backward_input(rows, V, C);
    o.linear_backward_weight(rows, V, C);
  }
}

}  // namespace forge

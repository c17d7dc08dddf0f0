#include "nn/head.plan.hpp"

namespace forge {

namespace {

// Logits of a chunk, and their loss; with their gradient, where it is taken.
void list_chunk(Segments& list, std::int64_t rows, bool gradient) {
  const std::int64_t V = list.spec.V();
  list.linear_to_sums(rows, V, list.spec.C());
  if (list.spec.options.logit_soft_cap > 0) list.over_rows("soft_cap", rows, V, 0, 0, 1, 1);
  if (list.c.tp > 1) list.over_rows("cross_entropy_statistics", rows, V, 0, 0, 1, 0);
  list.send(Group::tp, Collective::all_gather, 3 * rows, list.c.precision.accumulate);
  list.over_rows("cross_entropy", rows, V, 0, gradient, 1, 0);
}

void list_sums_by_group(Segments& list, std::int64_t rows) {
  const auto loss_bytes = static_cast<std::int64_t>(size_of(list.c.precision.accumulate));
  list.add(RowKernel{"sum_by_group", rows, 1, rows * (loss_bytes + 4), 0});
}

template <class F>
void for_chunks(const Segments& list, F f) {
  for (std::int64_t begin = 0; begin < list.R; begin += list.c.head_chunk_rows)
    f(std::min(list.c.head_chunk_rows, list.R - begin));
}

// The run of the head whose texts' losses give the weights of the second one's gradients.
void list_pairs(Segments& list) {
  for_chunks(list, [&](std::int64_t rows) {
    list_chunk(list, rows, false);
    list_sums_by_group(list, rows);
  });
  list.send(Group::cp, Collective::all_reduce, list.c.texts(), DType::f64);
  list.add(RowKernel{"pair_losses", list.c.texts() / 2, 2, 16 * list.c.texts(), 0});
}

}  // namespace

void list_head(Segments& list, bool of_model) {
  const std::int64_t V = list.spec.V(), C = list.spec.C();
  const bool pairs = of_model && list.c.pairs;
  list.gather_rows(C);
  if (pairs) list_pairs(list);
  for_chunks(list, [&](std::int64_t rows) {
    list_chunk(list, rows, true);
    if (list.spec.options.logit_soft_cap > 0) list.over_rows("soft_cap_backward", rows, V, 1, 1, 1, 0);
    if (!pairs) {
      list.over_rows("sum_into", rows, 1, 0, 0, 1, 0);  // the loss; of each source; z
      if (of_model && list.c.sources > 0) list_sums_by_group(list, rows);
      list.over_rows("sum_into", rows, 1, 0, 0, 1, 0);
    }
    list.linear_backward_input(rows, V, C);
    if (!list.frozen) list.linear_backward_weight(rows, V, C);
  });
  list.reduce_rows(C);
}

}  // namespace forge

#include "nn/router.plan.hpp"

#include "config/router_score.hpp"

namespace forge {

bool backward_reads_logits(const ModelSpec& s) {
  return chosen_by_logit(s.options.router_score) || s.options.router_z_coefficient > 0;
}

std::int64_t balance_scopes(const BufferContext& c) {
  return c.spec.options.auxiliary_loss_scope == AuxiliaryScope::sequence ? c.microbatch.sequences : 1;
}

void add_router_sends(Sends& sends) {
  const BufferContext& c = sends.c;
  const ModelDeck& o = c.spec.options;
  const MoeShape m = moe_shape(c);
  if (o.auxiliary_loss_coefficient > 0)
    for (const Group group : {Group::tp, Group::cp})
      sends.add(group, Collective::all_reduce, balance_scopes(c) * (2 * m.experts + 1), DType::f64);
  if (o.capacity_factor == 0) return;
  for (const DType type : {DType::i32, c.precision.accumulate}) {
    sends.add(Group::tp, Collective::all_gather, m.rows * m.chosen, type);
    sends.add(Group::cp, Collective::all_gather, c.tp * m.rows * m.chosen, type);
  }
}

namespace {

// The sums of the auxiliary losses; what a recomputed pass has counted before isn't counted again.
void add_loss_operations(Operations& o) {
  const std::int64_t E = o.spec.E();
  if (o.spec.options.auxiliary_loss_coefficient > 0) {
    o.over_rows("router_statistics", o.S, E, 0, 0, 1, 0);
    o.row_kernels.back().launches = 2;
    if (!o.recomputes) o.over_indices("router_balance_loss", balance_scopes(o.c) * E, 4, 0);
  }
  if (o.spec.options.router_z_coefficient == 0 || o.recomputes) return;
  o.over_rows("router_z_loss", o.S, E, 0, 0, 1, 0);
  o.over_rows("sum_into", o.S, 1, 0, 0, 1, 0);
}

}  // namespace

void add_router_operations(Operations& o, Pass pass) {
  const std::int64_t E = o.spec.E(), C = o.spec.C();
  const bool jitters = o.spec.options.router_jitter > 0, balances = o.spec.options.auxiliary_loss_coefficient > 0;
  if (jitters) o.over_rows("jitter", o.S, C, 1, 1);
  switch (pass) {
    case Pass::forward:
      o.linear_to_sums(o.S, E, C);
      o.over_rows("router_forward", o.S, E, 0, 0, 1, 1);
      if (o.spec.options.forced_balance) o.row_kernels.back().launches = 2;  // the choices, then their weights
      return add_loss_operations(o);
    case Pass::backward_input:
      if (balances) o.over_rows("router_balance_gradient", o.S, E, 0, 0, 1, 1);
      o.over_rows("router_backward", o.S, E, 0, 0, 2, 1);
      if (o.spec.options.router_z_coefficient > 0) o.over_rows("router_z_loss", o.S, E, 0, 0, 2, 1);
      if (o.c.precision.compute != o.c.precision.accumulate) o.over_rows("convert_rows", o.S, E, 0, 1, 1, 0);
      o.linear_backward_input(o.S, E, C);
      if (jitters) o.over_rows("add", o.S, C, 2, 1);
      return;
    case Pass::backward_weight:
      o.linear_backward_weight(o.S, E, C);
  }
}

}  // namespace forge

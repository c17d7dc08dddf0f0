#include "nn/router.plan.hpp"

#include "config/router_score.hpp"

namespace forge {

bool backward_reads_logits(const ModelSpec& s) {
  return chosen_by_logit(s.options.router_score) || s.options.router_z_coefficient > 0;
}

std::int64_t balance_scopes(const BufferContext& c) {
  return c.spec.options.auxiliary_loss_scope == AuxiliaryScope::sequence ? c.microbatch.sequences : 1;
}

namespace {

// The sums of the auxiliary loss; what a recomputed pass has counted before isn't counted again.
void list_balance(Segments& list) {
  const std::int64_t E = list.spec.E(), scopes = balance_scopes(list.c);
  list.over_rows("router_statistics", list.S, E, 0, 0, 1, 0).launches = 2;
  for (const Group group : {Group::tp, Group::cp})
    list.send(group, Collective::all_reduce, scopes * (2 * E + 1), DType::f64);
  if (!list.recomputes) list.over_indices("router_balance_loss", scopes * (2 * E + 1), 2, 0);
}

// Choices and their weights, where capacities drop some.
void list_capacity(Segments& list) {
  const std::int64_t own = list.S * list.spec.experts_per_token();
  for (const DType type : {DType::i32, list.c.precision.accumulate}) {
    list.send(Group::tp, Collective::all_gather, own, type);
    list.send(Group::cp, Collective::all_gather, list.c.tp * own, type);
  }
  const std::int64_t all = list.c.tp * list.c.microbatch.cp * own;
  list.over_indices("capacity_drop", all, 2, 2, 3);  // the bins of choices; what is dropped, and how many
  list_moe_sort(list, all);
}

}  // namespace

void list_router(Segments& list, Pass pass) {
  const std::int64_t E = list.spec.E(), C = list.spec.C();
  const ModelDeck& o = list.spec.options;
  const bool jitters = o.router_jitter > 0, balances = o.auxiliary_loss_coefficient > 0;
  const auto jitter = [&] {
    if (jitters) list.over_rows("jitter", list.S, C, 1, 1);
  };
  switch (pass) {
    case Pass::forward:
      jitter();
      list.linear_to_sums(list.S, E, C);
      if (o.router_logit_bias) list.over_rows("add_bias", list.S, E, 0, 0, 1, 1);
      // With forced balance the choices, then their weights.
      list.over_rows(o.forced_balance ? "router_weights" : "router_forward", list.S, E, 0, 0, 1, 1).launches =
          o.forced_balance ? 2 : 1;
      if (balances) list_balance(list);
      if (o.capacity_factor > 0) list_capacity(list);
      if (o.router_z_coefficient == 0 || list.recomputes) return;
      list.over_rows("router_z_loss", list.S, E, 0, 0, 1, 0);
      list.over_rows("sum_into", list.S, 1, 0, 0, 1, 0);
      return;
    case Pass::backward_input:
      if (balances) list.over_rows("router_balance_gradient", list.S, E, 0, 0, sums_to_one(o.router_score) ? 0 : 1, 1);
      list.over_rows("router_backward", list.S, E, 0, 0, balances ? 2 : 1, 1);
      if (o.router_z_coefficient > 0) list.over_rows("router_z_loss", list.S, E, 0, 0, 2, 1);
      if (list.c.precision.compute != list.c.precision.accumulate)
        list.over_rows("convert_rows", list.S, E, 0, 1, 1, 0);
      list.linear_backward_input(list.S, E, C);
      jitter();
      if (jitters) list.over_rows("add", list.S, C, 2, 1);
      return;
    case Pass::backward_weight:
      jitter();
      list.linear_backward_weight(list.S, E, C);
      if (o.router_logit_bias) list.column_sums("column_sum", list.S, E, 1);
      return;
    case Pass::backward:
      list_router(list, Pass::backward_input);
      list_router(list, Pass::backward_weight);
  }
}

}  // namespace forge

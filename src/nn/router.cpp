#include "nn/router.hpp"

#include <vector>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "nn/linear.hpp"
#include "nn/rows.hpp"

namespace forge {

template <class T>
RouterOptions Router<T>::options() const {
  const ModelDeck& o = ctx.spec().options;
  RouterOptions r;
  r.experts = o.experts;
  r.chosen = o.experts_per_token;
  r.score = o.router_score;
  r.renormalise = o.router_renormalise;
  r.scale = o.router_scale;
  r.groups = o.router_groups;
  r.groups_used = o.router_groups_used;
  r.group_score = o.router_group_score;
  return r;
}

// What the router reads: x, with jitter while it trains.
template <class T>
Jitter Router<T>::jitter_of() const {
  return {ctx.spec().options.router_jitter,
          random_key(ctx.services.seed, Purpose::jitter, static_cast<std::uint64_t>(ctx.step),
                     static_cast<std::uint64_t>(layer)),
          own_rows(ctx.groups, batch.samples), own_rows(ctx.groups, batch.positions)};
}

template <class T>
View<const T, 2> Router<T>::input(View<const T, 2> x, const JitterScratch<T>& s) const {
  if (!jitters()) return x;
  jitter<T>(ctx.stream, x, s.rows, jitter_of());
  return s.rows;
}

// Whose scope each of this rank's rows is, for the auxiliary loss.
template <class T>
View<const std::int32_t, 1> Router<T>::scopes() const {
  const RouterState<T>& run = ctx.services.routers;
  return own_rows(ctx.groups, ctx.spec().options.auxiliary_loss_scope == AuxiliaryScope::sequence ? run.row_scopes
                                                                                                  : run.zero_scopes);
}

// The layer's sums behind its assignments: auxiliary loss, z-loss, dropped assignments.
template <class T>
View<double, 1> Router<T>::sum_of(std::int64_t index) const {
  return View<double, 1>(ctx.services.routers.sums.row(layer) + ctx.spec().E() + index, {{1}});
}

template <class T>
void Router<T>::balance(View<double, 2> partial, bool counts) const {
  const View<double, 2> table = b.balance;
  router_statistics<A>(ctx.stream, options(), b.scores, b.choices, scopes(), partial, table);
  if (ctx.groups.tp) ctx.groups.tp->all_reduce(ctx.stream, table);
  if (ctx.groups.cp) ctx.groups.cp->all_reduce(ctx.stream, table);
  // The ranks that share a scope have the same table: one of them counts it.
  if (counts && ctx.groups.tp_rank() == 0 && ctx.groups.cp_rank() == 0)
    router_balance_loss(ctx.stream, options(), table, sum_of(balance_sum));
}

// The choices, on the host; true: the tape has changed them.
template <class T>
bool Router<T>::show(RoutingTape& tape) const {
  const auto samples = own_rows(ctx.groups, batch.samples);
  const auto positions = own_rows(ctx.groups, batch.positions);
  const View<std::int32_t, 2> choices = b.choices;
  std::vector<std::int64_t> host_samples(to_size(samples.size()));
  std::vector<std::int32_t> host_positions(to_size(positions.size()));
  std::vector<std::int32_t> host_choices(to_size(choices.size()));
  copy_to_host(ctx.stream, host_samples.data(), samples.data, host_samples.size() * sizeof(std::int64_t));
  copy_to_host(ctx.stream, host_positions.data(), positions.data, host_positions.size() * sizeof(std::int32_t));
  copy_to_host(ctx.stream, host_choices.data(), choices.data, host_choices.size() * sizeof(std::int32_t));
  ctx.stream.synchronize();
  const bool changed = tape.visit(layer, View<const std::int64_t, 1>(host_samples.data(), samples.extents),
                                  View<const std::int32_t, 1>(host_positions.data(), positions.extents),
                                  View<std::int32_t, 2>(host_choices.data(), choices.extents));
  if (changed) {
    copy_to_device(ctx.stream, choices.data, host_choices.data(), host_choices.size() * sizeof(std::int32_t));
    ctx.stream.synchronize();
  }
  return changed;
}

template <class T>
void Router<T>::choose() const {
  const View<const std::int64_t, 1> samples = own_rows(ctx.groups, batch.samples);
  if (ctx.spec().options.forced_balance) {
    balanced_experts(ctx.stream, options(), own_rows(ctx.groups, batch.positions), b.choices, samples);
    return router_weights<A>(ctx.stream, options(), b.logits, b.choices, b.weights, b.scores);
  }
  const View<A, 2>& biases = ctx.services.routers.bias;
  const View<const A, 1> bias =
      biases.empty() ? View<const A, 1>() : View<const A, 1>(biases.row(layer), {{ctx.spec().E()}});
  router_forward<A>(ctx.stream, options(), b.logits, bias, b.weights, b.choices, b.scores, samples);
  if (ctx.routing && show(*ctx.routing))
    router_weights<A>(ctx.stream, options(), b.logits, b.choices, b.weights, b.scores);
}

// values of this rank's rows, of all tp ranks, of all cp ranks.
template <class T>
template <class P>
void Router<T>::gather_choices(View<const P, 2> own, View<P, 2> of_tp, View<P, 2> all) const {
  const auto target = ctx.groups.cp ? of_tp : all;
  if (ctx.groups.tp)
    ctx.groups.tp->all_gather(ctx.stream, own, target);
  else
    copy_on_device(ctx.stream, target.data, own.data, to_size(own.size()) * sizeof(P));
  if (ctx.groups.cp) ctx.groups.cp->all_gather(ctx.stream, View<const P, 2>(of_tp), all);
}

// choices → kept
template <class T>
void Router<T>::drop(const CapacityScratch<T>& s, View<std::int64_t, 1> uncounted, bool counts) const {
  const MoeShape m = moe_shape(ctx.buffers);
  const LayerGroups& g = ctx.groups;
  const RouterState<T>& run = ctx.services.routers;
  const CapacityOptions options{
      m.experts, ctx.buffers.microbatch.sequences, ctx.spec().options.capacity_factor,
      ctx.spec().options.capacity_drop == CapacityDrop::position ? DropBy::position : DropBy::probability};
  const CapacityWorkspace workspace{s.bins, s.place, s.order, s.counts, s.offsets, s.sort};
  // Dropped assignments are counted by the first of the ranks that see the same rows.
  const bool first = g.tp_rank() == 0 && g.cp_rank() == 0;
  const View<std::int64_t, 1> count = counts && first ? run.dropped.slice(layer, layer + 1) : uncounted;
  if (!g.tp && !g.cp) {
    capacity_drop<A>(ctx.stream, options, b.choices, b.weights, run.row_scopes, batch.positions, workspace, b.kept,
                     count);
    return;
  }
  gather_choices<std::int32_t>(b.choices, s.tp_choices, s.all_choices);
  gather_choices<A>(b.weights, s.tp_weights, s.all_weights);
  capacity_drop<A>(ctx.stream, options, s.all_choices, s.all_weights, g.cp ? run.all_row_scopes : run.row_scopes,
                   g.cp ? run.all_row_positions : batch.positions, workspace, s.all_kept, count);
  const std::int64_t begin = (g.cp_rank() * g.tp_size() + g.tp_rank()) * m.rows;
  copy_on_device(ctx.stream, b.kept.data, s.all_kept.row(begin), to_size(b.kept.size()) * sizeof(std::int32_t));
}

template <class T>
void Router<T>::forward(View<const T, 2> w, View<const T, 1> bias, View<const T, 2> x, const RouterForward<T>& s,
                        View<std::int64_t, 1> uncounted, bool counts) const {
  const ModelDeck& o = ctx.spec().options;
  linear_forward<T, A>(ctx, input(x, s.jittered), w, {}, b.logits);
  if (!bias.empty()) add_bias<T>(ctx.stream, bias, b.logits);
  choose();
  if (ctx.training && o.auxiliary_loss_coefficient > 0) balance(s.balance_partial, counts);
  if (o.capacity_factor > 0) drop(s.capacity, uncounted, counts);
  if (!counts) return;
  if (ctx.training && o.router_z_coefficient > 0) {
    router_z_loss<A>(ctx.stream, b.logits, 0, s.z, {}, b.choices);
    sum_into<A>(ctx.stream, s.z, sum_of(z_sum));
  }
}

template <class T>
void Router<T>::backward_input(View<const T, 2> w, const RouterBackward<T>& s, View<T, 2> dx) const {
  const ModelDeck& o = ctx.spec().options;
  View<A, 2> d = s.d_sums;
  if constexpr (!rounds<T>) d = b.d_logits;
  View<const A, 2> d_scores;
  if (o.auxiliary_loss_coefficient > 0) {
    router_balance_gradient<A>(ctx.stream, options(), b.scores, b.balance, scopes(), ctx.router.balance, d);
    d_scores = d;
  }
  router_backward<A>(ctx.stream, options(), b.logits, b.scores, b.choices, s.d_weights, d_scores, d);
  if (o.router_z_coefficient > 0) router_z_loss<A>(ctx.stream, b.logits, ctx.router.z, {}, d, b.choices);
  if constexpr (rounds<T>) convert_rows<A, T>(ctx.stream, d, b.d_logits);
  if (!jitters()) return linear_backward_input<T>(ctx, b.d_logits, w, dx, true);
  linear_backward_input<T>(ctx, b.d_logits, w, s.jittered.rows);
  jitter<T>(ctx.stream, s.jittered.rows, s.jittered.rows, jitter_of());
  add<T>(ctx.stream, line_of(s.jittered.rows), line_of(dx));
}

template <class T>
void Router<T>::backward_weight(View<const T, 2> x, const JitterScratch<T>& s, const RowScratch<T>& rows, View<A, 2> g,
                                View<A, 1> g_bias) const {
  if (!g.empty()) linear_backward_weight<T>(ctx, b.d_logits, input(x, s), g);
  bias_backward<T>(ctx, b.d_logits, g_bias, rows);
}

FORGE_INSTANTIATE_CLASS(Router);

}  // namespace forge

#include "nn/router.hpp"

#include <vector>

#include "device/memory.hpp"
#include "kernels/moe.hpp"
#include "model/moe_buffers.hpp"
#include "nn/linear.hpp"
#include "nn/rows.hpp"

namespace forge {

namespace {

RouterOptions router_options(const ModelSpec& m) {
  const ModelDeck& o = m.options;
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

// What the router reads: n2, with jitter while it trains.
template <class T>
Jitter jitter_of(const Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  return {
      ctx.spec().options.router_jitter,
      random_key(ctx.seed, Purpose::jitter, static_cast<std::uint64_t>(ctx.step), static_cast<std::uint64_t>(layer)),
      own_rows(ctx.groups, s.vector<std::int64_t>(Buf::samples)),
      own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions))};
}

template <class T>
bool jitters(const Context<T>& ctx) {
  return ctx.training && ctx.spec().options.router_jitter > 0;
}

template <class T>
View<const T, 2> router_input(Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  const View<T, 2> n2 = s.matrix<T>(Buf::n2);
  if (!jitters(ctx)) return n2;
  const View<T, 2> x = s.matrix<T>(Buf::jittered);
  jitter<T>(ctx.stream, n2, x, jitter_of(ctx, layer, s));
  return x;
}

// Whose scope each of this rank's rows is, for the auxiliary loss.
template <class T>
View<const std::int32_t, 1> scopes_of(const Context<T>& ctx) {
  return own_rows(ctx.groups, ctx.spec().options.auxiliary_loss_scope == AuxiliaryScope::sequence
                                  ? ctx.router.row_scopes
                                  : ctx.router.zero_scopes);
}

// The layer's sums behind its assignments: auxiliary loss, z-loss, dropped assignments.
template <class T>
View<double, 1> sum_of(const Context<T>& ctx, std::int64_t layer, std::int64_t index) {
  return View<double, 1>(ctx.router.sums.row(layer) + ctx.spec().E() + index, {{1}});
}

template <class T>
void balance_forward(Context<T>& ctx, std::int64_t layer, const BufferSet& s, bool counts) {
  using A = acc_t<T>;
  const RouterOptions options = router_options(ctx.spec());
  const auto table = s.matrix<double>(Buf::balance);
  router_statistics<A>(ctx.stream, options, s.matrix<A>(Buf::router_scores), s.matrix<std::int32_t>(Buf::choices),
                       scopes_of(ctx), s.matrix<double>(Buf::balance_partial), table);
  if (ctx.groups.tp) ctx.groups.tp->all_reduce(ctx.stream, table);
  if (ctx.groups.cp) ctx.groups.cp->all_reduce(ctx.stream, table);
  // The ranks that share a scope have the same table: one of them counts it.
  if (counts && ctx.groups.tp_rank() == 0 && ctx.groups.cp_rank() == 0)
    router_balance_loss(ctx.stream, options, table, sum_of(ctx, layer, balance_sum));
}

// The choices, on the host; true: the tape has changed them.
template <class T>
bool show(RoutingTape& tape, Context<T>& ctx, std::int64_t layer, const BufferSet& s, View<std::int32_t, 2> choices) {
  const auto samples = own_rows(ctx.groups, s.vector<std::int64_t>(Buf::samples));
  const auto positions = own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions));
  std::vector<std::int64_t> host_samples(static_cast<std::size_t>(samples.size()));
  std::vector<std::int32_t> host_positions(static_cast<std::size_t>(positions.size()));
  std::vector<std::int32_t> host_choices(static_cast<std::size_t>(choices.size()));
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
void choose(Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  using A = acc_t<T>;
  const RouterOptions options = router_options(ctx.spec());
  const auto logits = s.matrix<A>(Buf::router_logits), weights = s.matrix<A>(Buf::choice_weights),
             scores = s.matrix<A>(Buf::router_scores);
  const auto choices = s.matrix<std::int32_t>(Buf::choices);
  if (ctx.spec().options.forced_balance) {
    balanced_experts(ctx.stream, options.experts, own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions)),
                     choices);
    return router_weights<A>(ctx.stream, options, logits, choices, weights, scores);
  }
  const View<const A, 1> bias =
      ctx.router.bias.empty() ? View<const A, 1>() : View<const A, 1>(ctx.router.bias.row(layer), {{options.experts}});
  router_forward<A>(ctx.stream, options, logits, bias, weights, choices, scores);
  if (ctx.router.tape && show(*ctx.router.tape, ctx, layer, s, choices))
    router_weights<A>(ctx.stream, options, logits, choices, weights, scores);
}

CapacityWorkspace capacity_workspace(const BufferSet& s) {
  return {s.matrix<std::int32_t>(Buf::capacity_bins),    s.matrix<std::int32_t>(Buf::capacity_place),
          s.vector<std::int32_t>(Buf::capacity_order),   s.vector<std::int64_t>(Buf::capacity_counts),
          s.vector<std::int64_t>(Buf::capacity_offsets), s.matrix<std::int32_t>(Buf::capacity_sort)};
}

// values of this rank's rows, of all tp ranks, of all cp ranks.
template <class T, class P>
void gather_choices(Context<T>& ctx, View<const P, 2> own, View<P, 2> of_tp, View<P, 2> all) {
  const auto target = ctx.groups.cp ? of_tp : all;
  if (ctx.groups.tp)
    ctx.groups.tp->all_gather(ctx.stream, own, target);
  else
    copy_on_device(ctx.stream, target.data, own.data, static_cast<std::size_t>(own.size()) * sizeof(P));
  if (ctx.groups.cp) ctx.groups.cp->all_gather(ctx.stream, View<const P, 2>(of_tp), all);
}

// choices → kept_choices
template <class T>
void drop(Context<T>& ctx, std::int64_t layer, const BufferSet& s, bool counts) {
  using A = acc_t<T>;
  const ModelDeck& o = ctx.spec().options;
  const MoeShape m = moe_shape(ctx.buffers);
  const LayerGroups& g = ctx.groups;
  CapacityOptions options{m.experts, m.capacity, 1,
                          o.capacity_drop == CapacityDrop::position ? DropBy::position : DropBy::probability};
  const View<const std::int32_t, 2> choices = s.matrix<std::int32_t>(Buf::choices);
  const View<const A, 2> weights = s.matrix<A>(Buf::choice_weights);
  const auto kept = s.matrix<std::int32_t>(Buf::kept_choices);
  const View<const std::int32_t, 1> positions = s.vector<std::int32_t>(Buf::positions);
  // Dropped assignments are counted by the first of the ranks that see the same rows.
  const bool first = g.tp_rank() == 0 && g.cp_rank() == 0;
  const View<std::int64_t, 1> dropped(ctx.router.dropped.data + layer, {{1}});
  if (m.fixed) {
    const View<std::int64_t, 1> count = counts ? dropped : s.vector<std::int64_t>(Buf::own_counts).slice(0, 1);
    capacity_drop<A>(ctx.stream, options, choices, weights, own_rows(g, ctx.router.zero_scopes), own_rows(g, positions),
                     capacity_workspace(s), kept, count);
    return;
  }
  options.scopes = ctx.buffers.microbatch.sequences;
  const View<std::int64_t, 1> count = counts && first ? dropped : s.vector<std::int64_t>(Buf::own_counts).slice(0, 1);
  if (!g.tp && !g.cp) {
    capacity_drop<A>(ctx.stream, options, choices, weights, ctx.router.row_scopes, positions, capacity_workspace(s),
                     kept, count);
    return;
  }
  const auto all = s.matrix<std::int32_t>(Buf::all_choices);
  const auto all_weights = s.matrix<A>(Buf::all_choice_weights);
  const auto all_kept = s.matrix<std::int32_t>(Buf::all_kept);
  gather_choices<T, std::int32_t>(ctx, choices, s.matrix<std::int32_t>(Buf::tp_choices), all);
  gather_choices<T, A>(ctx, weights, s.matrix<A>(Buf::tp_choice_weights), all_weights);
  capacity_drop<A>(ctx.stream, options, all, all_weights, g.cp ? ctx.router.all_row_scopes : ctx.router.row_scopes,
                   g.cp ? ctx.router.all_row_positions : positions, capacity_workspace(s), all_kept, count);
  const std::int64_t begin = (g.cp_rank() * g.tp_size() + g.tp_rank()) * m.rows;
  copy_on_device(ctx.stream, kept.data, all_kept.row(begin),
                 static_cast<std::size_t>(kept.size()) * sizeof(std::int32_t));
}

}  // namespace

template <class T>
void router_forward_layer(Context<T>& ctx, std::int64_t layer, View<const T, 2> w, const BufferSet& s, bool counts) {
  using A = acc_t<T>;
  const ModelDeck& o = ctx.spec().options;
  const auto logits = s.matrix<A>(Buf::router_logits);
  linear_forward<T, A>(ctx, router_input(ctx, layer, s), w, {}, logits);
  choose(ctx, layer, s);
  if (ctx.training && o.auxiliary_loss_coefficient > 0) balance_forward(ctx, layer, s, counts);
  if (o.capacity_factor > 0) drop(ctx, layer, s, counts);
  if (!counts) return;
  if (ctx.training && o.router_z_coefficient > 0) {
    const auto z = s.vector<A>(Buf::router_z);
    router_z_loss<A>(ctx.stream, logits, 0, z, {});
    sum_into<A>(ctx.stream, z, sum_of(ctx, layer, z_sum));
  }
}

template <class T>
void router_backward_input(Context<T>& ctx, std::int64_t layer, View<const T, 2> w, const BufferSet& s,
                           View<T, 2> d_n2) {
  using A = acc_t<T>;
  const ModelDeck& o = ctx.spec().options;
  const RouterOptions options = router_options(ctx.spec());
  const View<const A, 2> logits =
      s.has(Buf::router_logits) ? View<const A, 2>(s.matrix<A>(Buf::router_logits)) : View<const A, 2>();
  const View<const A, 2> scores = s.matrix<A>(Buf::router_scores);
  const View<const std::int32_t, 2> choices = s.matrix<std::int32_t>(Buf::choices);
  const View<A, 2> d = s.matrix<A>(s.has(Buf::d_router_sums) ? Buf::d_router_sums : Buf::d_router);
  View<const A, 2> d_scores;
  if (o.auxiliary_loss_coefficient > 0) {
    router_balance_gradient<A>(ctx.stream, options, scores, s.matrix<double>(Buf::balance), scopes_of(ctx),
                               ctx.router.balance_scale, d);
    d_scores = d;
  }
  router_backward<A>(ctx.stream, options, logits, scores, choices, s.matrix<A>(Buf::d_choice_weights), d_scores, d);
  if (o.router_z_coefficient > 0) router_z_loss<A>(ctx.stream, logits, ctx.router.z_scale, {}, d);
  const View<T, 2> d_logits = s.matrix<T>(Buf::d_router);
  if (s.has(Buf::d_router_sums)) convert_rows<A, T>(ctx.stream, d, d_logits);
  if (!jitters(ctx))
    return ctx.gemm(ctx.stream, Transpose::no, Transpose::no, 1.0, View<const T, 2>(d_logits), w, 1.0, d_n2);
  const View<T, 2> dx = s.matrix<T>(Buf::jittered);
  linear_backward_input<T>(ctx, d_logits, w, dx);
  jitter<T>(ctx.stream, dx, dx, jitter_of(ctx, layer, s));
  add<T>(ctx.stream, View<const T, 1>(dx.data, {{dx.size()}}), View<T, 1>(d_n2.data, {{d_n2.size()}}));
}

template <class T>
void router_backward_weight(Context<T>& ctx, std::int64_t layer, View<acc_t<T>, 2> g, const BufferSet& s) {
  linear_backward_weight<T>(ctx, s.matrix<T>(Buf::d_router), router_input(ctx, layer, s), g);
}

#define FORGE_INSTANTIATE(T)                                                                                         \
  template void router_forward_layer<T>(Context<T>&, std::int64_t, View<const T, 2>, const BufferSet&, bool);        \
  template void router_backward_input<T>(Context<T>&, std::int64_t, View<const T, 2>, const BufferSet&, View<T, 2>); \
  template void router_backward_weight<T>(Context<T>&, std::int64_t, View<acc_t<T>, 2>, const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

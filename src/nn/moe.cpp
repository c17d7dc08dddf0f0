#include "nn/moe.hpp"

#include "device/side_stream.hpp"
#include "kernels/moe.hpp"
#include "nn/dispatch.hpp"
#include "nn/mlp.hpp"
#include "nn/router.hpp"
#include "nn/rows.hpp"

namespace forge {

namespace {

template <class P>
MlpTensors<P> shared_of(const BlockTensors<P>& t) {
  return {t.shared_up, t.shared_down, {}, {}};
}

template <class T>
bool has_shared(const Context<T>& ctx) {
  return ctx.spec().Fs() > 0;
}
template <class T>
bool has_gate(const Context<T>& ctx) {
  return ctx.spec().options.shared_expert_gate;
}

// The buffers of a round's rows, in the order of experts.
template <class T>
struct ExpertRows {
  using A = acc_t<T>;
  ExpertRows(const BufferSet& s, std::int64_t rows)
      : in(s.matrix<T>(Buf::expert_in).slice(0, rows)),
        up(s.matrix<T>(Buf::expert_up).slice(0, rows)),
        act(s.matrix<T>(Buf::expert_act).slice(0, rows)),
        weights(s.vector<A>(Buf::received_weights).slice(0, rows)) {}
  View<T, 2> in, up, act;
  View<A, 1> weights;
};

// Rows that travel while the shared experts compute, in a stream of their own, where there are both.
template <class T>
class Ahead {
 public:
  explicit Ahead(Context<T>& ctx)
      : compute_(ctx.stream),
        side_(has_shared(ctx) && moe_shape(ctx.buffers).exchanges() ? ctx.groups.stream : nullptr) {}

  // send(): gives its work to the dispatch's stream.
  template <class Send>
  void start(Dispatch<T>& dispatch, int round, Send send) {
    dispatch.prepare(round);
    if (!side_) return send();
    side_.run(compute_, sent_, [&](Stream& stream) {
      dispatch.send_in(stream);
      send();
      dispatch.send_in(compute_);
    });
  }
  void wait() {
    if (!side_) return;
    sent_.wait(compute_);
    side_.rethrow();
  }

 private:
  Stream& compute_;
  SideStream side_;
  Event sent_;
};

// n2 and weights → rows of a round.
template <class T>
void send_to_experts(const BufferSet& s, Dispatch<T>& dispatch, int round) {
  const ExpertRows<T> rows(s, dispatch.offsets(round).back());
  dispatch.send_rows(round, s.matrix<T>(Buf::n2), rows.in);
  dispatch.send_weights(round, s.matrix<acc_t<T>>(Buf::choice_weights), rows.weights);
}

// rows → gate and up, activations of a round.
template <class T>
void experts_to_activation(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s, Dispatch<T>& dispatch,
                           int round) {
  const std::vector<std::int64_t> offsets = dispatch.offsets(round);
  const ExpertRows<T> rows(s, offsets.back());
  ctx.gemm.template grouped_rows<T, T>(ctx.stream, offsets, Transpose::yes, 1.0, rows.in, w.expert_up, 0.0, rows.up);
  weighted_swiglu_forward<T>(ctx.stream, rows.up, rows.weights, rows.act);
}

// shared(n2) up to its activation, and its gate.
template <class T>
void shared_to_activation(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  if (!has_shared(ctx)) return;
  mlp_forward_to_activation(ctx, shared_of(w), s);
  if (!has_gate(ctx)) return;
  const auto gate = s.matrix<acc_t<T>>(Buf::shared_gate);
  linear_forward<T, acc_t<T>>(ctx, s.matrix<T>(Buf::n2), w.shared_gate, {}, gate);
  sigmoid<acc_t<T>>(ctx.stream, s.vector<acc_t<T>>(Buf::shared_gate));
}

// Where the step's assignments of each expert are counted.
template <class T>
View<double, 1> load_of(const Context<T>& ctx, std::int64_t layer) {
  return ctx.router.sums.empty() ? View<double, 1>() : View<double, 1>(ctx.router.sums.row(layer), {{ctx.spec().E()}});
}

}  // namespace

template <class T>
void moe_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s,
                 View<T, 2> y) {
  router_forward_layer(ctx, layer, w.router, s, true);
  const auto dispatch = sort_assignments<T>(ctx, s, load_of(ctx, layer));
  const int last = dispatch->rounds() - 1;
  Ahead<T> ahead(ctx);
  ahead.start(*dispatch, last, [&] { send_to_experts(s, *dispatch, last); });
  shared_to_activation(ctx, w, s);
  if (has_shared(ctx)) {
    const View<T, 2> out = has_gate(ctx) ? s.matrix<T>(Buf::shared_out) : y;
    mlp_forward_output(ctx, shared_of(w), s, out);
    if (has_gate(ctx)) gate_rows<T>(ctx.stream, out, s.vector<acc_t<T>>(Buf::shared_gate), y);
  }
  // The first round comes last, so that its rows are those that stay.
  ahead.wait();
  for (int round = last; round >= 0; --round) {
    if (round < last) send_to_experts(s, *dispatch, round);
    experts_to_activation(ctx, w, s, *dispatch, round);
    const std::vector<std::int64_t> offsets = dispatch->offsets(round);
    const View<T, 2> out = dispatch->outbox(round, Buf::expert_out);
    ctx.gemm.template grouped_rows<T, T>(ctx.stream, offsets, Transpose::yes, 1.0, ExpertRows<T>(s, offsets.back()).act,
                                         w.expert_down, 0.0, out);
    dispatch->return_rows(round, out);
  }
  dispatch->sum_rows(has_shared(ctx), y);
}

template <class T>
void moe_recompute(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  router_forward_layer(ctx, layer, w.router, s, false);
  const auto dispatch = sort_assignments<T>(ctx, s, {});
  Ahead<T> ahead(ctx);
  ahead.start(*dispatch, 0, [&] { send_to_experts(s, *dispatch, 0); });
  shared_to_activation(ctx, w, s);
  if (has_gate(ctx)) mlp_forward_output(ctx, shared_of(w), s, s.matrix<T>(Buf::shared_out));  // the gate's gradient
  ahead.wait();
  experts_to_activation(ctx, w, s, *dispatch, 0);
}

template <class T>
void moe_activate(Context<T>& ctx, const BufferSet& s) {
  if (has_shared(ctx)) mlp_activate(ctx, s);
  // Rows behind the last one are whatever they were, and read by nobody.
  weighted_swiglu_forward<T>(ctx.stream, s.matrix<T>(Buf::expert_up), s.vector<acc_t<T>>(Buf::received_weights),
                             s.matrix<T>(Buf::expert_act));
}

namespace {

// d_n2 = of the shared experts; leaves in d_down_out, where that exists, what their W reads.
template <class T>
void shared_backward_input(Context<T>& ctx, const BlockTensors<const T>& w, View<const T, 2> d_y, View<T, 2> d_n2,
                           const BufferSet& s) {
  const LayerGroups& g = ctx.groups;
  View<const T, 2> d_all = d_y;
  if (s.has(Buf::d_down_out)) {
    const View<T, 2> all = s.matrix<T>(Buf::d_down_out), own = own_rows(g, all);
    if (has_gate(ctx))
      gate_rows_backward<T>(ctx.stream, d_y, s.matrix<T>(Buf::shared_out), s.vector<acc_t<T>>(Buf::shared_gate), own,
                            s.vector<T>(Buf::d_shared_gate));
    else
      copy_rows<T>(ctx.stream, d_y, own);
    if (g.tp) g.tp->all_gather(ctx.stream, View<const T, 2>(own), all);
    d_all = all;
  }
  mlp_backward_input(ctx, shared_of(w), d_all, d_n2, s);
  if (has_gate(ctx))
    ctx.gemm(ctx.stream, Transpose::no, Transpose::no, 1.0, View<const T, 2>(s.matrix<T>(Buf::d_shared_gate)),
             w.shared_gate, 1.0, d_n2);
}

// The gradient of the experts' output, of a round.
template <class T>
View<T, 2> d_experts_out(const BufferSet& s, const Dispatch<T>& dispatch, int round) {
  return s.matrix<T>(Buf::d_expert).slice(0, dispatch.offsets(round).back());
}

// Rows of d_y, which were received → those of d_n2 of a round, and the gradients of its experts.
template <class T>
void experts_backward(Context<T>& ctx, const BlockTensors<const T>& w, const BlockTensors<acc_t<T>>& g,
                      const BufferSet& s, Dispatch<T>& dispatch, int round) {
  using A = acc_t<T>;
  const std::vector<std::int64_t> offsets = dispatch.offsets(round);
  const std::int64_t n = offsets.back();
  const ExpertRows<T> rows(s, n);
  const View<T, 2> d_out = d_experts_out(s, dispatch, round), d_act = s.matrix<T>(Buf::d_expert_act).slice(0, n);
  const View<A, 1> d_weights = s.vector<A>(Buf::d_received_weights).slice(0, n);
  ctx.gemm.template grouped_sums<T, A>(ctx.stream, offsets, 1.0, d_out, rows.act, 1.0, g.expert_down);
  ctx.gemm.template grouped_rows<T, T>(ctx.stream, offsets, Transpose::no, 1.0, d_out, w.expert_down, 0.0, d_act);
  weighted_swiglu_backward<T>(ctx.stream, rows.up, rows.weights, d_act, rows.up, d_weights);
  ctx.gemm.template grouped_sums<T, A>(ctx.stream, offsets, 1.0, rows.up, rows.in, 1.0, g.expert_up);
  const View<T, 2> d_in = dispatch.outbox(round, Buf::d_expert);
  ctx.gemm.template grouped_rows<T, T>(ctx.stream, offsets, Transpose::no, 1.0, rows.up, w.expert_up, 0.0, d_in);
  dispatch.return_rows(round, d_in);
  dispatch.return_weights(round, d_weights);
}

}  // namespace

template <class T>
void moe_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                        const BlockTensors<acc_t<T>>& g, View<const T, 2> d_y, View<T, 2> d_n2, const BufferSet& s) {
  const auto dispatch = sorted_assignments<T>(ctx, s);
  Ahead<T> ahead(ctx);
  const auto send = [&](int round) { dispatch->send_rows(round, d_y, d_experts_out(s, *dispatch, round)); };
  ahead.start(*dispatch, 0, [&] { send(0); });
  if (has_shared(ctx)) shared_backward_input(ctx, w, d_y, d_n2, s);
  ahead.wait();
  for (int round = 0; round < dispatch->rounds(); ++round) {
    if (round > 0) {  // its rows are recomputed
      send_to_experts(s, *dispatch, round);
      experts_to_activation(ctx, w, s, *dispatch, round);
      send(round);
    }
    experts_backward(ctx, w, g, s, *dispatch, round);
  }
  dispatch->sum_rows(has_shared(ctx), d_n2);
  dispatch->place_weights(s.matrix<acc_t<T>>(Buf::d_choice_weights));
  router_backward_input(ctx, layer, w.router, s, d_n2);
}

template <class T>
void moe_backward_weight(Context<T>& ctx, std::int64_t layer, const BlockTensors<acc_t<T>>& g, View<const T, 2> d_down,
                         const BufferSet& s) {
  router_backward_weight(ctx, layer, g.router, s);
  if (!has_shared(ctx)) return;
  mlp_backward_weight(ctx, shared_of(g), d_down, s);
  if (has_gate(ctx))
    linear_backward_weight<T>(ctx, s.matrix<T>(Buf::d_shared_gate), s.matrix<T>(Buf::n2), g.shared_gate);
}

#define FORGE_INSTANTIATE(T)                                                                                           \
  template void moe_forward<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&, const BufferSet&, View<T, 2>); \
  template void moe_recompute<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&, const BufferSet&);           \
  template void moe_activate<T>(Context<T>&, const BufferSet&);                                                        \
  template void moe_backward_input<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&,                         \
                                      const BlockTensors<acc_t<T>>&, View<const T, 2>, View<T, 2>, const BufferSet&);  \
  template void moe_backward_weight<T>(Context<T>&, std::int64_t, const BlockTensors<acc_t<T>>&, View<const T, 2>,     \
                                       const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

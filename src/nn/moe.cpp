#include "nn/moe.hpp"

#include "device/side_stream.hpp"
#include "kernels/experts/expert_kernels.hpp"

namespace forge {

namespace {

// The rows of a round.
template <class T>
ExpertBuffers<T> first_rows(const ExpertBuffers<T>& b, std::int64_t rows) {
  return {b.weights.slice(0, rows), b.in.slice(0, rows), b.up.slice(0, rows), b.act.slice(0, rows), {}, {}};
}

// Rows that travel while the shared experts compute, in a stream of their own, where there are both.
template <class T>
class Ahead {
 public:
  explicit Ahead(const Context<T>& ctx)
      : compute_(ctx.stream),
        side_(ctx.spec().Fs() > 0 && moe_shape(ctx.buffers).exchanges() ? ctx.groups.stream : nullptr),
        group_(ctx.groups.ep ? ctx.groups.ep : ctx.groups.etp) {}

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
    group_->wait(compute_, sent_);
    side_.rethrow();
  }

 private:
  Stream& compute_;
  SideStream side_;
  const Communicator* group_;
  Event sent_;
};

}  // namespace

template <class T>
std::optional<ScaledOperand> Moe<T>::codes(ProductOf of, std::int64_t rows) const {
  if (!ctx.rounding.block || !ctx.buffers.rounding.dispatch) return std::nullopt;
  return rows_to_experts(ctx.buffers, of, rows);
}

// In steps that count, of rows that experts get rounded: x(S, C) once, whatever the choices.
template <class T>
void Moe<T>::count_codes(ProductOf of, View<const T, 2> x) const {
  const std::optional<ScaledOperand> operand = codes(of, x.rows());
  if (!operand || ctx.rounding.counts.counts.empty()) return;
  const bool output = of == ProductOf::output;
  const View<float, 1> amax = ctx.scratch.rounding.amax.slice(0, operand->groups());
  const View<const std::int64_t, 1> samples = samples_of(ctx, x.rows());
  take_amax<T>(ctx.stream, x, *operand, amax, 1, samples);
  count_tensor<T>(ctx, output ? BlockProduct::expert_gate_up : BlockProduct::expert_down,
                  output ? RoundedTensor::x : RoundedTensor::dy, x, x.rows(), x.columns(), *operand, amax, samples);
}

// n2 and weights → rows of a round.
template <class T>
void Moe<T>::send_to_experts(Dispatch<T>& dispatch, int round) const {
  const ExpertBuffers<T> rows = first_rows(b.experts, dispatch.count(round));
  dispatch.send(round, {n2, rows.in, codes(ProductOf::output, n2.rows()), b.router.weights, rows.weights});
}

// rows → gate and up, activations of a round, if `activates`.
template <class T>
void Moe<T>::experts_to_activation(const Context<T>& of_round, Dispatch<T>& dispatch, int round, bool activates) const {
  const ExpertRows sorted = dispatch.rows(round);
  const ExpertBuffers<T> rows = first_rows(b.experts, sorted.count());
  block_expert_forward<T>(of_round, sorted, up_split(), rows.in, w.experts.up, rows.up);
  if (has_biases()) expert_bias_forward<T>(ctx.stream, sorted.groups, w.experts.up_bias, up_biases(), {}, rows.up);
  up_adapter(sorted).forward(rows.in, rows.up);
  if (activates) weighted_swiglu_forward<T>(ctx.stream, rows.up, rows.weights, rows.act, gate_of(ctx.spec()));
}

// shared(n2) up to its activation, and its gate.
template <class T>
RowOperand<T> Moe<T>::shared_to_activation(const RowOperand<T>& normed, const RowScratch<T>& rows, bool output) const {
  RowOperand<T> act = shared().forward_to_activation(normed, rows, output);
  if (!has_gate()) return act;
  linear_forward<T, A>(ctx, n2, w.shared_gate, {}, b.shared_gate);
  sigmoid<A>(ctx.stream, line_of(b.shared_gate));
  return act;
}

// Where the step's assignments of each expert are counted.
template <class T>
View<double, 1> Moe<T>::load() const {
  const View<double, 2>& sums = ctx.services.routers.sums;
  return sums.empty() ? View<double, 1>() : View<double, 1>(sums.row(layer), {{ctx.spec().E()}});
}

template <class T>
void Moe<T>::forward(const RowOperand<T>& normed, View<T, 2> y, const MoeForward<T>& s,
                     const RowScratch<T>& rows) const {
  router().forward(w.router, w.router_bias, n2, s.router, s.sort.counts.slice(0, 1), true);
  const auto dispatch =
      sort_assignments<T>(ctx, b.router.choices, b.router.kept, s.sort, b.dispatch, s.dispatch, load());
  const int last = dispatch->rounds() - 1;
  Ahead<T> ahead(ctx);
  ahead.start(*dispatch, last, [&] { send_to_experts(*dispatch, last); });
  if (has_shared()) {
    const View<T, 2> out = has_gate() ? b.shared_out : y;
    shared().forward_output(shared_to_activation(normed, rows), out, rows);
    if (has_gate()) gate_rows<T>(ctx.stream, out, line_of(b.shared_gate), y);
  }
  count_codes(ProductOf::output, n2);
  // The first round comes last, so that its rows are those that stay.
  ahead.wait();
  for (int round = last; round >= 0; --round) {
    const Context<T> of_round =
        with_counts(ctx, {ctx.rounding.counts.counts, ctx.rounding.counts.partials, round == 0});
    if (round < last) {
      const Tracks::Alone sends(ctx.tracks);
      send_to_experts(*dispatch, round);
    }
    const Tracks::Alone further(round > 0 ? ctx.tracks : nullptr);
    experts_to_activation(of_round, *dispatch, round, true);
    const ExpertRows sorted = dispatch->rows(round);
    const View<T, 2> out = dispatch->outbox(round, s.expert_out);
    const View<T, 2> act = b.experts.act.slice(0, sorted.count());
    block_expert_forward<T>(of_round, sorted, down_split(), act, w.experts.down, out);
    if (has_biases())
      expert_bias_forward<T>(ctx.stream, sorted.groups, w.experts.down_bias, down_biases(),
                             first_rows(b.experts, sorted.count()).weights, out);
    down_adapter(sorted).forward(act, out);
    dispatch->give_back(round, out, {});
  }
  dispatch->sum_rows(has_shared(), y);
}

template <class T>
void Moe<T>::recompute(const RowOperand<T>& normed, const MoeForward<T>& s, const RowScratch<T>& rows) const {
  router().forward(w.router, w.router_bias, n2, s.router, s.sort.counts.slice(0, 1), false);
  const auto dispatch = sort_assignments<T>(ctx, b.router.choices, b.router.kept, s.sort, b.dispatch, s.dispatch, {});
  Ahead<T> ahead(ctx);
  ahead.start(*dispatch, 0, [&] { send_to_experts(*dispatch, 0); });
  if (has_shared()) {
    const RowOperand<T> act = shared_to_activation(normed, rows, has_gate());
    if (has_gate()) shared().forward_output(act, b.shared_out, rows);  // the gate's gradient
  }
  ahead.wait();
  experts_to_activation(ctx, *dispatch, 0, !experts_activate_in_backward());
}

template <class T>
void Moe<T>::activate() const {
  const bool rounded = ctx.rounding.block;
  if (has_shared() && activates_before_backward(ctx.buffers, rounded)) shared().activate();
  if (!activates_before_backward(ctx.buffers, rounded, Recompute::expert_activations)) return;
  // Rows behind the last one are whatever they were, and read by nobody.
  weighted_swiglu_forward<T>(ctx.stream, b.experts.up, b.experts.weights, b.experts.act, gate_of(ctx.spec()));
}

// d_n2 = of the shared experts; leaves in d_down_out, where that exists, what their W reads.
template <class T>
void Moe<T>::shared_backward_input(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2,
                                   const MoeBackward<T>& s, const RowScratch<T>& rows,
                                   const RowScratch<T>* weights) const {
  const LayerGroups& groups = ctx.groups;
  if (!d_down_out.empty()) {
    const View<T, 2> own = own_rows(groups, d_down_out);
    if (has_gate())
      gate_rows_backward<T>(ctx.stream, d_y, b.shared_out, line_of(b.shared_gate), own, line_of(b.d_shared_gate));
    else
      copy_rows<T>(ctx.stream, d_y, own);
    if (groups.tp) groups.tp->all_gather(ctx.stream, View<const T, 2>(own), d_down_out);
    d_y = d_down_out;
  }
  const bool activates =
      activates_in_backward(ctx.buffers, ctx.rounding.block) && !recomputes_shared_output(ctx.buffers);
  if (weights)
    shared().backward(n2, d_y, s.d_shared_act, d_n2, rows, *weights, activates);
  else
    shared().backward_input(d_y, s.d_shared_act, d_n2, rows, activates);
  if (has_gate()) linear_backward_input<T>(ctx, b.d_shared_gate, w.shared_gate, d_n2, true);
}

// Rows of d_y, which were received → those of d_n2 of a round, and the gradients of its experts:
//   d_act = d_out Wdown;  dWdown += d_outᵀ act;  dWup += d_upᵀ in;  d_in = d_up Wup
// and with biases, of rows with weights w:
//   d_w += <bdown, d_out>;  dbdown += Σ w d_out;  dbup += Σ d_up
// and those of their adapters. `activates`: act is made here. What forward left of down's low-rank rows is there in the
// first round alone, and not where full recomputation dropped it.
template <class T>
void Moe<T>::experts_backward(const MoeBackward<T>& s, Dispatch<T>& dispatch, int round, bool activates) const {
  const ExpertRows sorted = dispatch.rows(round);
  const std::int64_t n = sorted.count();
  const ExpertBuffers<T> rows = first_rows(b.experts, n);
  const View<T, 2> d_out = s.d_rows.slice(0, n), d_act = s.d_act.slice(0, n);
  const View<A, 1> d_weights = s.d_weights.slice(0, n);
  const ExpertAdapter<T> up = up_adapter(sorted, s.d_up_low.of(n)), down = down_adapter(sorted, s.d_down_low.of(n));
  block_expert_backward_input<T>(ctx, sorted, down_split(), d_out, w.experts.down, d_act);
  down.backward_input(d_out, d_act);
  weighted_swiglu_backward<T>(ctx.stream, rows.up, rows.weights, d_act, rows.up, d_weights,
                              activates ? rows.act : View<T, 2>(), gate_of(ctx.spec()));
  if (has_biases()) biases_backward(sorted.groups, rows, d_out, d_weights);
  expert_backward_weight<T>(ctx, sorted, d_out, rows.act, g.experts.down);
  expert_backward_weight<T>(ctx, sorted, rows.up, rows.in, g.experts.up);
  if (round > 0 || ctx.buffers.recompute == Recompute::full) down.low_rows(rows.act);
  down.backward_weight(d_out, rows.act);
  const View<T, 2> d_in = dispatch.outbox(round, s.d_rows);
  block_expert_backward_input<T>(ctx, sorted, up_split(), rows.up, w.experts.up, d_in);
  up.backward_input(rows.up, d_in);
  up.backward_weight(rows.up, rows.in);
  dispatch.give_back(round, d_in, d_weights);
}

// Before d_in takes d_out's place.
template <class T>
void Moe<T>::biases_backward(const RowGroups& groups, const ExpertBuffers<T>& rows, View<const T, 2> d_out,
                             View<A, 1> d_weights) const {
  expert_bias_weights<T>(ctx.stream, groups, w.experts.down_bias, down_biases(), d_out, d_weights);
  if (g.experts.down_bias.empty()) return;
  expert_bias_backward<T>(ctx.stream, groups, d_out, down_biases(), rows.weights, g.experts.down_bias);
  expert_bias_backward<T>(ctx.stream, groups, rows.up, up_biases(), {}, g.experts.up_bias);
}

template <class T>
void Moe<T>::backward_input(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2, const MoeBackward<T>& s,
                            const RowScratch<T>& rows, const RowScratch<T>* weights) const {
  const auto dispatch = sorted_assignments<T>(ctx, b.dispatch, s.dispatch);
  count_codes(ProductOf::input_gradient, d_y);
  Ahead<T> ahead(ctx);
  const auto send = [&](int round) {
    dispatch->send(
        round, {d_y, s.d_rows.slice(0, dispatch->count(round)), codes(ProductOf::input_gradient, d_y.rows()), {}, {}});
  };
  ahead.start(*dispatch, 0, [&] { send(0); });
  if (has_shared()) shared_backward_input(d_y, d_down_out, d_n2, s, rows, weights);
  ahead.wait();
  for (int round = 0; round < dispatch->rounds(); ++round) {
    const Tracks::Alone further(round > 0 ? ctx.tracks : nullptr);
    if (round > 0) {  // its rows are recomputed
      send_to_experts(*dispatch, round);
      experts_to_activation(with_counts(ctx, {}), *dispatch, round, false);
      send(round);
    }
    experts_backward(s, *dispatch, round, round > 0 || experts_activate_in_backward());
  }
  dispatch->sum_rows(has_shared(), d_n2);
  dispatch->place_weights(s.router.d_weights);
  router().backward_input(w.router, s.router, d_n2);
}

template <class T>
void Moe<T>::backward_weight(View<const T, 2> d_down, const JitterScratch<T>& jittered,
                             const RowScratch<T>& rows) const {
  router().backward_weight(n2, jittered, rows, g.router, g.router_bias);
  if (has_shared()) shared().backward_weight(n2, d_down, rows);
  add_gate_weights();
}

template <class T>
void Moe<T>::add_gate_weights() const {
  if (!g.shared_gate.empty()) linear_backward_weight<T>(ctx, b.d_shared_gate, n2, g.shared_gate);
}

template <class T>
void Moe<T>::backward(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2, const MoeBackward<T>& s,
                      const RowScratch<T>& rows, const JitterScratch<T>& jittered, const RowScratch<T>& weights) const {
  backward_input(d_y, d_down_out, d_n2, s, rows, &weights);
  router().backward_weight(n2, jittered, weights, g.router, g.router_bias);
  add_gate_weights();
}

FORGE_INSTANTIATE_CLASS(Moe);

}  // namespace forge

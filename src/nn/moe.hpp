#pragma once

#include "nn/dispatch.hpp"
#include "nn/expert_adapter.hpp"
#include "nn/mlp.hpp"
#include "nn/moe.plan.hpp"
#include "nn/router.hpp"

namespace forge {

// The second half of a block with experts, from the normalised stream n2 on:
//   y(r) = Σ_c weight(r,c) · expert_choice(r,c)(n2(r)) + gate(r) · shared(n2(r))
// with expert(x) = down(g(gate x) · h(up x)), g and h as of Gate, and biases of the three where the model has them; the
// weight enters before `down`, which is linear, and as a factor of its bias. Dropless dispatch runs
// in rounds of bounded size: the first one's rows stay for backward, which recomputes the others'.
template <class T>
struct Moe {
  using A = acc_t<T>;
  const Context<T>& ctx;
  std::int64_t layer;
  const Batch& batch;
  View<const T, 2> n2;  // (S, C)
  const MoeBuffers<T>& b;
  const MoeParameters<const T>& w;
  const MoeParameters<A>& g;

  // normed, which is n2, → y(S,C)
  void forward(const RowOperand<T>& normed, View<T, 2> y, const MoeForward<T>& s, const RowScratch<T>& rows) const;
  // Recomputes what full recomputation dropped, up to the activations.
  void recompute(const RowOperand<T>& normed, const MoeForward<T>& s, const RowScratch<T>& rows) const;
  // Makes the activations that recomputation names, where B doesn't.
  void activate() const;
  // B, and W of the experts, whose later rounds' rows exist only here: d_n2(S,C) from d_y(S,C), the gradient of y.
  // d_down_out(R,C), where it is not empty, gets what W of the shared experts reads.
  void backward_input(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2, const MoeBackward<T>& s,
                      const RowScratch<T>& rows) const {
    backward_input(d_y, d_down_out, d_n2, s, rows, nullptr);
  }
  // W of the router and the shared experts; d_down(R,C): d_down_out as B left it, or d_y where that is empty.
  void backward_weight(View<const T, 2> d_down, const JitterScratch<T>& jittered, const RowScratch<T>& rows) const;
  // Both; W has a workspace of its own.
  void backward(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2, const MoeBackward<T>& s,
                const RowScratch<T>& rows, const JitterScratch<T>& jittered, const RowScratch<T>& weights) const;

 private:
  bool has_shared() const { return ctx.spec().Fs() > 0; }
  bool has_biases() const { return ctx.spec().options.expert_bias; }
  BiasColumns up_biases() const { return {0, b.experts.up.columns()}; }
  BiasColumns down_biases() const { return down_bias_columns(ctx.buffers, ctx.groups.etp_rank()); }
  bool experts_activate_in_backward() const {
    return activates_in_backward(ctx.buffers, ctx.rounding.block, Recompute::expert_activations);
  }
  bool has_gate() const { return ctx.spec().options.shared_expert_gate; }
  MatrixSplit up_split() const { return expert_up_split(ctx.spec(), b.experts.act.columns()); }
  MatrixSplit down_split() const { return expert_down_split(ctx.spec(), b.experts.act.columns()); }
  Router<T> router() const { return {ctx, layer, batch, b.router}; }
  Mlp<T> shared() const { return {ctx, b.shared, w.shared, g.shared, true, layer, batch}; }
  // Over the rows of a round; gradients of low-rank rows in B alone.
  ExpertAdapter<T> up_adapter(const ExpertRows& rows, View<T, 2> d_u = {}) const {
    const View<T, 2> u = b.experts.up_low.of(rows.count());
    return {ctx, BlockProduct::expert_gate_up, w.experts.up_adapter, g.experts.up_adapter, rows, u, d_u};
  }
  ExpertAdapter<T> down_adapter(const ExpertRows& rows, View<T, 2> d_u = {}) const {
    const View<T, 2> u = b.experts.down_low.of(rows.count());
    return {ctx, BlockProduct::expert_down, w.experts.down_adapter, g.experts.down_adapter, rows, u, d_u};
  }
  View<double, 1> load() const;
  // As what rows are sent to the experts; none: as they are.
  std::optional<ScaledOperand> codes(ProductOf of, std::int64_t rows) const;
  void count_codes(ProductOf of, View<const T, 2> x) const;
  void send_to_experts(Dispatch<T>& dispatch, int round) const;
  void experts_to_activation(const Context<T>& of_round, Dispatch<T>& dispatch, int round, bool activates) const;
  RowOperand<T> shared_to_activation(const RowOperand<T>& normed, const RowScratch<T>& rows, bool output = true) const;
  void shared_backward_input(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2, const MoeBackward<T>& s,
                             const RowScratch<T>& rows, const RowScratch<T>* weights) const;
  // With `weights`, W's workspace, W of the shared experts, too.
  void backward_input(View<const T, 2> d_y, View<T, 2> d_down_out, View<T, 2> d_n2, const MoeBackward<T>& s,
                      const RowScratch<T>& rows, const RowScratch<T>* weights) const;
  void add_gate_weights() const;
  void biases_backward(const RowGroups& groups, const ExpertBuffers<T>& rows, View<const T, 2> d_out,
                       View<A, 1> d_weights) const;
  void experts_backward(const MoeBackward<T>& s, Dispatch<T>& dispatch, int round, bool activates) const;
};

}  // namespace forge

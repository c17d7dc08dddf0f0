#include "nn/mlp.hpp"

namespace forge {

namespace {

Pointwise pointwise_of(Activation activation) {
  return activation == Activation::gelu        ? Pointwise::gelu
         : activation == Activation::gelu_tanh ? Pointwise::gelu_tanh
                                               : Pointwise::relu2;
}

}  // namespace

Gate gate_of(const ModelSpec& spec) {
  const ModelDeck& o = spec.options;
  if (o.activation == Activation::clamped_swiglu) return {Gate::clamped, o.activation_limit, o.activation_alpha};
  return o.activation == Activation::geglu ? Gate::gelu_tanh : Gate::silu;
}

template <class T>
void Mlp<T>::activate(const RowAmaxes& amax) const {
  if (ctx.spec().gated())
    swiglu_forward<T>(ctx.stream, b.up, b.act, amax, gate_of(ctx.spec()));
  else
    pointwise_forward<T>(ctx.stream, pointwise_of(ctx.spec().options.activation), b.up, b.act, amax);
}

template <class T>
RowOperand<T> Mlp<T>::forward_to_activation(const RowOperand<T>& x, const RowScratch<T>& scratch, bool output) const {
  Array<RowOperand<T>, 2> of{{gather_operand<T>(ctx, x, b.all_in.empty() ? scratch.all_rows : b.all_in), b.act}};
  if (output) of = code_together<T>(ctx, ProductOf::output, {up_split(), of[0], w.up}, {down_split(), b.act, w.down});
  block_linear_forward<T>(ctx, up_split(), of[0], w.up, w.up_bias, b.up);
  up_adapter().forward(of[0].values(), b.up);
  if (!output && activates_in_backward(ctx.buffers, ctx.rounding.block)) return of[1];
  return RowOperand<T>::measured(ctx, ProductOf::output, down_split(), of[1],
                                 [&](const RowAmaxes& amax) { activate(amax); });
}

template <class T>
void Mlp<T>::forward_output(const RowOperand<T>& act, View<T, 2> y, const RowScratch<T>& scratch) const {
  row_parallel_forward<T>(ctx, down_split(), act, w.down, w.down_bias, y, scratch,
                          [&](View<T, 2> partial) { down_adapter().forward(b.act, partial); });
}

// d_act = dy Wdown;  d_up = d_act ∂act;  dx = d_up Wup
template <class T>
void Mlp<T>::backward_to_partial(View<const T, 2> dy, View<T, 2> d_act, View<T, 2> partial, bool activates) const {
  const View<T, 2> act = activates ? b.act : View<T, 2>();
  const auto of =
      code_together<T>(ctx, ProductOf::input_gradient, {down_split(), dy, w.down}, {up_split(), b.up, w.up});
  block_linear_backward_input<T>(ctx, down_split(), of[0], w.down, d_act);
  down_adapter().backward_input(dy, d_act);
  const auto d_up =
      RowOperand<T>::measured(ctx, ProductOf::input_gradient, up_split(), of[1], [&](const RowAmaxes& amax) {
        if (ctx.spec().gated())
          swiglu_backward<T>(ctx.stream, b.up, d_act, b.up, amax, act, gate_of(ctx.spec()));
        else
          pointwise_backward<T>(ctx.stream, pointwise_of(ctx.spec().options.activation), b.up, d_act, b.up, amax, act);
      });
  if (ctx.buffers.recompute == Recompute::full && !recomputes_output(ctx.buffers)) down_adapter().low_rows(b.act);
  block_linear_backward_input<T>(ctx, up_split(), d_up, w.up, partial);
  up_adapter().backward_input(b.up, partial);
}

template <class T>
void Mlp<T>::backward_input(View<const T, 2> dy, View<T, 2> d_act, View<T, 2> dx, const RowScratch<T>& scratch,
                            bool activates) const {
  const View<T, 2> partial = partial_rows(ctx, scratch, dx);
  backward_to_partial(dy, d_act, partial, activates);
  reduce_rows(ctx, partial, dx);
}

// dWdown += dyᵀ act;  dWup += d_upᵀ x
template <class T>
void Mlp<T>::add_weights(View<const T, 2> in, View<const T, 2> dy, const RowScratch<T>& scratch) const {
  const View<const T, 2> d_up = b.up;
  Array<RowOperand<T>, 2> of{{dy, d_up}};
  if (!g.up.empty())
    of = code_together<T>(ctx, ProductOf::weight_gradient, {down_split(), dy, b.act}, {up_split(), d_up, in});
  block_linear_backward_weight<T>(ctx, down_split(), of[0], b.act, g.down);
  down_adapter().backward_weight(dy, b.act);
  block_linear_backward_weight<T>(ctx, up_split(), of[1], in, g.up);
  up_adapter().backward_weight(d_up, in);
  // The output's bias was added to this rank's rows only.
  bias_backward<T>(ctx, own_rows(ctx.groups, dy), g.down_bias, scratch);
  bias_backward<T>(ctx, d_up, g.up_bias, scratch);
}

template <class T>
void Mlp<T>::backward_weight(View<const T, 2> x, View<const T, 2> dy, const RowScratch<T>& scratch) const {
  add_weights(gather_rows<T>(ctx, x, scratch), dy, scratch);
}

template <class T>
void Mlp<T>::backward(View<const T, 2> x, View<const T, 2> dy, View<T, 2> d_act, View<T, 2> dx,
                      const RowScratch<T>& scratch, const RowScratch<T>& weights, bool activates) const {
  RowsBehind<T> behind(ctx);
  const View<const T, 2> in = behind.gather(x, b.all_in, weights.all_rows);
  const View<T, 2> partial = partial_rows(ctx, scratch, dx);
  backward_to_partial(dy, d_act, partial, activates);
  behind.reduce_beside(partial, dx, [&] { add_weights(in, dy, weights); });
}

FORGE_INSTANTIATE_CLASS(Mlp);

}  // namespace forge

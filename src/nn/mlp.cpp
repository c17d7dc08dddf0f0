#include "nn/mlp.hpp"

#include "nn/rows.hpp"

namespace forge {

namespace {

Pointwise pointwise_of(Activation activation) {
  return activation == Activation::gelu        ? Pointwise::gelu
         : activation == Activation::gelu_tanh ? Pointwise::gelu_tanh
                                               : Pointwise::relu2;
}

}  // namespace

template <class T>
void mlp_activate(Context<T>& ctx, const BufferSet& s) {
  if (ctx.spec().gated())
    swiglu_forward<T>(ctx.stream, s.matrix<T>(Buf::up), s.matrix<T>(Buf::act));
  else
    pointwise_forward<T>(ctx.stream, pointwise_of(ctx.spec().options.activation), s.matrix<T>(Buf::up),
                         s.matrix<T>(Buf::act));
}

template <class T>
void mlp_forward_to_activation(Context<T>& ctx, const MlpTensors<const T>& w, const BufferSet& s) {
  linear_forward<T>(ctx, gather_rows<T>(ctx, s.matrix<T>(Buf::n2), s), w.up, w.up_bias, s.matrix<T>(Buf::up));
  mlp_activate(ctx, s);
}

template <class T>
void mlp_forward_output(Context<T>& ctx, const MlpTensors<const T>& w, const BufferSet& s, View<T, 2> y) {
  row_parallel_forward<T>(ctx, s.matrix<T>(Buf::act), w.down, w.down_bias, y, s);
}

template <class T>
void mlp_backward_input(Context<T>& ctx, const MlpTensors<const T>& w, View<const T, 2> dy, View<T, 2> d_n2,
                        const BufferSet& s) {
  const auto up = s.matrix<T>(Buf::up);
  const auto d_act = s.matrix<T>(Buf::d_act);
  linear_backward_input<T>(ctx, dy, w.down, d_act);
  if (ctx.spec().gated())
    swiglu_backward<T>(ctx.stream, up, d_act, up);
  else
    pointwise_backward<T>(ctx.stream, pointwise_of(ctx.spec().options.activation), up, d_act, up);
  column_parallel_backward_input<T>(ctx, up, w.up, d_n2, s);
}

template <class T>
void mlp_backward_weight(Context<T>& ctx, const MlpTensors<acc_t<T>>& g, View<const T, 2> dy, const BufferSet& s) {
  const View<const T, 2> d_up = s.matrix<T>(Buf::up);
  linear_backward_weight<T>(ctx, dy, s.matrix<T>(Buf::act), g.down);
  linear_backward_weight<T>(ctx, d_up, gather_rows<T>(ctx, s.matrix<T>(Buf::n2), s), g.up);
  // The output's bias was added to this rank's rows only.
  bias_backward<T>(ctx, own_rows(ctx.groups, dy), g.down_bias, s);
  bias_backward<T>(ctx, d_up, g.up_bias, s);
}

#define FORGE_INSTANTIATE(T)                                                                                  \
  template void mlp_forward_to_activation<T>(Context<T>&, const MlpTensors<const T>&, const BufferSet&);      \
  template void mlp_activate<T>(Context<T>&, const BufferSet&);                                               \
  template void mlp_forward_output<T>(Context<T>&, const MlpTensors<const T>&, const BufferSet&, View<T, 2>); \
  template void mlp_backward_input<T>(Context<T>&, const MlpTensors<const T>&, View<const T, 2>, View<T, 2>,  \
                                      const BufferSet&);                                                      \
  template void mlp_backward_weight<T>(Context<T>&, const MlpTensors<acc_t<T>>&, View<const T, 2>, const BufferSet&);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

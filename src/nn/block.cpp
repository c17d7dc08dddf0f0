#include "nn/block.hpp"

#include "nn/attention_layer.hpp"
#include "nn/branch.hpp"
#include "nn/latent_attention.hpp"
#include "nn/mlp.hpp"
#include "nn/moe.hpp"
#include "nn/norm.hpp"

namespace forge {

namespace {

constexpr NormBuffers norm2{Buf::h, Buf::mean2, Buf::rstd2, Buf::n2};

// The first half: attention of the model's kind.
template <class T>
void attention_half_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  if (ctx.spec().mla()) return latent_attention_forward(ctx, layer, w, s);
  attention_layer_forward(ctx, layer, w, s);
}
template <class T>
void attention_half_recompute(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s) {
  if (ctx.spec().mla()) return latent_attention_recompute(ctx, w, s);
  attention_layer_recompute(ctx, w, s);
}
template <class T>
void attention_half_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                                   const BlockTensors<acc_t<T>>& g, const BufferSet& s, View<T, 2> dx) {
  if (ctx.spec().mla()) return latent_attention_backward_input(ctx, layer, w, g, s, dx);
  attention_layer_backward_input(ctx, layer, w, g, s, dx);
}
template <class T>
void attention_half_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s) {
  if (ctx.spec().mla()) return latent_attention_backward_weight(ctx, g, s);
  attention_layer_backward_weight(ctx, g, s);
}

// x → n2
template <class T>
void forward_to_norm2(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  attention_half_forward(ctx, layer, w, s);
  norm_forward<T>(ctx, norm2, w.norm2, w.norm2_bias, s);
}

// Gradient of the layer's output before dropout, of this rank's rows.
template <class T>
View<const T, 2> before_dropout(Context<T>& ctx, std::int64_t layer, const BufferSet& s, View<const T, 2> d_out) {
  if (ctx.dropout_rate() == 0) return d_out;
  const View<T, 2> d = s.matrix<T>(Buf::d_branch);
  dropout<T>(ctx.stream, d_out, d, dropout_of(ctx, layer, DropoutPlace::feed_forward, s));
  return d;
}

// d_out → d_h
template <class T>
void backward_feed_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                           const BlockTensors<acc_t<T>>& g, const BufferSet& kept, View<const T, 2> d_out) {
  Frame frame(ctx.arena);
  BufferSet s = kept;
  s.add(scratch_backward_mlp(ctx.buffers, layer), ctx.arena, Category::workspace);
  const auto d_n2 = s.matrix<T>(Buf::d_norm);
  if (ctx.spec().is_moe(layer))
    moe_backward_input(ctx, layer, w, g, before_dropout(ctx, layer, s, d_out), d_n2, s);
  else
    mlp_backward_input(ctx, mlp_of(w), output_rows(ctx, layer, DropoutPlace::feed_forward, s, d_out, Buf::d_down_out),
                       d_n2, s);
  norm_backward<T>(ctx, norm2, w.norm2, g.norm2, g.norm2_bias, d_n2, d_out, s.matrix<T>(Buf::d_h), s);
}

}  // namespace

template <class T>
void block_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& slot,
                   View<T, 2> out) {
  Frame frame(ctx.arena);
  BufferSet s = slot;
  s.add(recomputed_of_block(ctx.buffers, layer), ctx.arena, Category::workspace);
  s.add(scratch_forward_block(ctx.buffers, layer), ctx.arena, Category::workspace);
  forward_to_norm2(ctx, layer, w, s);
  const auto branch = s.matrix<T>(Buf::branch);
  if (ctx.spec().is_moe(layer)) {
    moe_forward(ctx, layer, w, s, branch);
  } else {
    mlp_forward_to_activation(ctx, mlp_of(w), s);
    mlp_forward_output(ctx, mlp_of(w), s, branch);
  }
  residual_add<T>(ctx.stream, s.matrix<T>(Buf::h), branch, out, dropout_of(ctx, layer, DropoutPlace::feed_forward, s));
}

template <class T>
void block_recompute(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s) {
  switch (ctx.buffers.recompute) {
    case Recompute::none:
      return;
    case Recompute::selective:
      attention_half_recompute(ctx, w, s);
      norm_forward<T>(ctx, norm2, w.norm2, w.norm2_bias, s);
      return ctx.spec().is_moe(layer) ? moe_activate(ctx, s) : mlp_activate(ctx, s);
    case Recompute::full: {
      Frame frame(ctx.arena);
      BufferSet all = s;
      all.add(scratch_forward_block(ctx.buffers, layer), ctx.arena, Category::workspace);
      forward_to_norm2(ctx, layer, w, all);
      return ctx.spec().is_moe(layer) ? moe_recompute(ctx, layer, w, all)
                                      : mlp_forward_to_activation(ctx, mlp_of(w), all);
    }
  }
}

template <class T>
void block_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                          const BlockTensors<acc_t<T>>& g, const BufferSet& s, View<const T, 2> d_out, View<T, 2> dx) {
  backward_feed_forward(ctx, layer, w, g, s, d_out);
  attention_half_backward_input(ctx, layer, w, g, s, dx);
}

template <class T>
void block_backward_weight(Context<T>& ctx, std::int64_t layer, const BlockTensors<acc_t<T>>& g, const BufferSet& kept,
                           View<const T, 2> d_out) {
  Frame frame(ctx.arena);
  BufferSet s = kept;
  s.add(scratch_backward_weight(ctx.buffers, layer), ctx.arena, Category::workspace);
  const View<const T, 2> d_down = s.has(Buf::d_down_out) ? View<const T, 2>(s.matrix<T>(Buf::d_down_out)) : d_out;
  if (ctx.spec().is_moe(layer))
    moe_backward_weight(ctx, layer, g, d_down, s);
  else
    mlp_backward_weight(ctx, mlp_of(g), d_down, s);
  attention_half_backward_weight(ctx, g, s);
}

#define FORGE_INSTANTIATE(T)                                                                                         \
  template void block_forward<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&, const BufferSet&,          \
                                 View<T, 2>);                                                                        \
  template void block_recompute<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&, const BufferSet&);       \
  template void block_backward_input<T>(Context<T>&, std::int64_t, const BlockTensors<const T>&,                     \
                                        const BlockTensors<acc_t<T>>&, const BufferSet&, View<const T, 2>,           \
                                        View<T, 2>);                                                                 \
  template void block_backward_weight<T>(Context<T>&, std::int64_t, const BlockTensors<acc_t<T>>&, const BufferSet&, \
                                         View<const T, 2>);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

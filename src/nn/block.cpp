#include "nn/block.hpp"

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "nn/attention_layer.hpp"
#include "nn/delta_layer.hpp"
#include "nn/latent_attention.hpp"
#include "nn/moe.hpp"

namespace forge {

namespace {

// Both kinds of each half, as of_attention() and of_feed_forward() take them.
template <class T>
struct Halves {
  const Block<T>& k;
  AttentionLayer<T> attention{k.p, k.b.attention, k.w.attention, k.g.attention};
  LatentAttention<T> latent{k.p, k.b.latent, k.w.latent, k.g.latent};
  DeltaLayer<T> delta{k.p, k.b.delta, k.w.delta, k.g.delta};
  Mlp<T> mlp{k.p.ctx, k.b.mlp, k.w.mlp, k.g.mlp, false, k.p.layer, k.p.batch};
  Moe<T> moe{k.p.ctx, k.p.layer, k.p.batch, k.b.n2, k.b.moe, k.w.moe, k.g.moe};
};

}  // namespace

// x → h = x + dropout(a), n2 = norm2(h); a = attention, or the norm of it where one stands behind; n2 is h where none
// stands before
template <class T>
RowOperand<T> Block<T>::forward_to_norm2(const BlockForward<T>& s) const {
  const ModelSpec& m = p.spec();
  const AttendBuffers<T>& a = b.attend(m, p.layer);
  const View<T, 2> branch = m.norms_behind() ? a.branch : s.branch;
  of_attention(m, p.layer, Halves<T>{*this}, [&](const auto& half) { half.forward(branch, s.rows); });
  if (m.norms_behind()) {
    const AttendParameters<const T>& of = of_attention(
        m, p.layer, w, [](const AttendParameters<const T>& half) -> const auto& { return half; });
    norm_forward<T>(p.ctx, branch, of.norm1_behind.weight, of.norm1_behind.bias, a.norm1_behind, s.branch);
  }
  const Dropout dropout = dropout_of(p.ctx, p.layer, DropoutPlace::attention_out, p.batch);
  if (!m.norms_before()) {
    residual_add<T>(p.ctx.stream, p.x, s.branch, a.h, dropout);
    return a.h;
  }
  const std::int64_t ffn = m.is_moe(p.layer) ? m.Fs() : m.F();
  const auto make = [&](const RowAmaxes& amax) {
    residual_norm_forward<T>(p.ctx, p.x, s.branch, dropout, w.norm2.weight, w.norm2.bias, b.norm2, a.h, b.n2, amax);
  };
  if (ffn > 0) return RowOperand<T>::measured(p.ctx, ProductOf::output, mlp_up_split(m, ffn), b.n2, make);
  make({});
  return b.n2;
}

// The feed-forward layer's result → its norm, where one stands behind
template <class T>
void Block<T>::norm_behind(View<const T, 2> result, View<T, 2> out) const {
  const NormParameters<const T>& norm = w.norm2_behind;
  if (p.spec().norms_behind()) norm_forward<T>(p.ctx, result, norm.weight, norm.bias, b.norm2_behind, out);
}

template <class T>
void Block<T>::forward(View<T, 2> out) {
  const View<float, 2>& amaxes = p.ctx.rounding.saved.rows;
  if (!amaxes.empty()) fill_zero(p.ctx.stream, amaxes.data, to_size(amaxes.size()) * sizeof(float));
  Frame frame(p.ctx.arena);
  BufferLister dropped(p.ctx.buffers, BufferLister::Part::recomputed);
  b.list(dropped, p.layer);
  allocate(p.ctx.arena, dropped.list);
  const auto s = workspace<BlockForward<T>>(p.ctx, p.layer, b);
  const RowOperand<T> normed = forward_to_norm2(s);
  const View<T, 2> branch = p.spec().norms_behind() ? b.branch : s.branch;
  of_feed_forward(
      p.spec(), p.layer, Halves<T>{*this},
      [&](const Mlp<T>& mlp) { mlp.forward_output(mlp.forward_to_activation(normed, s.rows), branch, s.rows); },
      [&](const Moe<T>& moe) { moe.forward(normed, branch, s.moe, s.rows); });
  norm_behind(branch, s.branch);
  residual_add<T>(p.ctx.stream, b.attend(p.spec(), p.layer).h, s.branch, out,
                  dropout_of(p.ctx, p.layer, DropoutPlace::feed_forward, p.batch));
}

template <class T>
void Block<T>::recompute_whole() {
  Frame frame(p.ctx.arena);
  const auto s = workspace<BlockForward<T>>(p.ctx, p.layer, b);
  const RowOperand<T> normed = forward_to_norm2(s);
  of_feed_forward(
      p.spec(), p.layer, Halves<T>{*this},
      [&](const Mlp<T>& mlp) {
        const bool output = recomputes_output(p.ctx.buffers);
        const RowOperand<T> act = mlp.forward_to_activation(normed, s.rows, output);
        if (output) mlp.forward_output(act, b.branch, s.rows);
      },
      [&](const Moe<T>& moe) { moe.recompute(normed, s.moe, s.rows); });
  norm_behind(b.branch, s.branch);
}

template <class T>
void Block<T>::recompute() {
  const Recompute policy = p.ctx.buffers.recompute;
  if (policy == Recompute::full) return recompute_whole();
  of_attention(p.spec(), p.layer, Halves<T>{*this}, [](const auto& half) { half.recompute(); });
  if (p.spec().norms_before() && policy.has(Recompute::norms))
    norm_forward<T>(p.ctx, b.attend(p.spec(), p.layer).h, w.norm2.weight, w.norm2.bias, b.norm2, b.n2);
  of_feed_forward(
      p.spec(), p.layer, Halves<T>{*this},
      [&](const Mlp<T>& mlp) {
        if (activates_before_backward(p.ctx.buffers, p.ctx.rounding.block)) mlp.activate();
      },
      [](const Moe<T>& moe) { moe.activate(); });
}

// d_out → d_h; with `weights`, W's workspace, W of the feed-forward part, too.
template <class T>
void Block<T>::backward_feed_forward(View<const T, 2> d_out, const BlockWeight<T>* weights) const {
  Frame frame(p.ctx.arena);
  const auto s = workspace<FeedForwardBackward<T>>(p.ctx, p.layer);
  const DropoutPlace place = DropoutPlace::feed_forward;
  const auto dense = [&](const Mlp<T>& mlp) {
    const View<const T, 2> d_y =
        output_rows<T>(p.ctx, p.layer, place, p.batch, d_out, b.d_down_out, [&](View<const T, 2> dy, View<T, 2> dx) {
          norm_backward<T>(p.ctx, b.branch, w.norm2_behind.weight, b.norm2_behind, g.norm2_behind.weight,
                           g.norm2_behind.bias, dy, {}, dx, s.rows);
        });
    const bool activates = activates_in_backward(p.ctx.buffers, p.ctx.rounding.block);
    if (weights) return mlp.backward(second_input(), d_y, s.d_act, s.d_n2, s.rows, weights->rows, activates);
    mlp.backward_input(d_y, s.d_act, s.d_n2, s.rows, activates);
  };
  const auto experts = [&](const Moe<T>& moe) {
    View<const T, 2> d_y = d_out;  // of this rank's rows, before dropout
    if (p.ctx.dropout_rate() > 0) {
      dropout<T>(p.ctx.stream, d_out, s.moe.d_branch, dropout_of(p.ctx, p.layer, place, p.batch));
      d_y = s.moe.d_branch;
    }
    if (weights) return moe.backward(d_y, b.d_down_out, s.d_n2, s.moe, s.rows, weights->jittered, weights->rows);
    moe.backward_input(d_y, b.d_down_out, s.d_n2, s.moe, s.rows);
  };
  of_feed_forward(p.spec(), p.layer, Halves<T>{*this}, dense, experts);
  const AttendBuffers<T>& a = b.attend(p.spec(), p.layer);
  if (!p.spec().norms_before()) return residual_add<T>(p.ctx.stream, d_out, s.d_n2, a.d_h, Dropout{});
  norm_backward<T>(p.ctx, a.h, w.norm2.weight, b.norm2, g.norm2.weight, g.norm2.bias, s.d_n2, d_out, a.d_h, s.rows);
}

template <class T>
void Block<T>::backward_input(View<const T, 2> d_out, View<T, 2> dx) const {
  backward_feed_forward(d_out, nullptr);
  of_attention(p.spec(), p.layer, Halves<T>{*this}, [&](const auto& half) { half.backward_input(dx); });
}

template <class T>
void Block<T>::backward_weight(View<const T, 2> d_out) const {
  Frame frame(p.ctx.arena);
  constexpr Pass pass = Pass::backward_weight;
  const auto s = workspace<BlockWeight<T>>(p.ctx, p.layer, pass);
  const View<const T, 2> d_down = b.d_down_out.empty() ? d_out : View<const T, 2>(b.d_down_out);
  of_feed_forward(
      p.spec(), p.layer, Halves<T>{*this},
      [&](const Mlp<T>& mlp) { mlp.backward_weight(second_input(), d_down, s.rows); },
      [&](const Moe<T>& moe) { moe.backward_weight(d_down, s.jittered, s.rows); });
  of_attention(p.spec(), p.layer, Halves<T>{*this}, [&](const auto& half) { half.backward_weight(s.rows); });
}

template <class T>
void Block<T>::backward(View<const T, 2> d_out, View<T, 2> dx) const {
  Frame frame(p.ctx.arena);
  constexpr Pass pass = Pass::backward;
  const auto s = workspace<BlockWeight<T>>(p.ctx, p.layer, pass);
  backward_feed_forward(d_out, &s);
  of_attention(p.spec(), p.layer, Halves<T>{*this}, [&](const auto& half) { half.backward(dx, s.rows); });
}

FORGE_INSTANTIATE_CLASS(Block);

}  // namespace forge

#include "nn/head.hpp"

#include "nn/linear.hpp"
#include "nn/norm.hpp"

namespace forge {

namespace {

constexpr NormBuffers final_norm{Buf::x_final, Buf::mean_final, Buf::rstd_final, Buf::n_final};

// The first `rows` rows of a chunk buffer.
template <class P>
View<P, 2> first_rows(View<P, 2> buffer, std::int64_t rows) {
  return buffer.slice(0, rows);
}

}  // namespace

template <class T>
void head_forward(Context<T>& ctx, const HeadTensors<const T>& w, const HeadTensors<acc_t<T>>* g, const BufferSet& slot,
                  LossScale scale, View<double, 1> loss_sum, View<double, 1> z_sum) {
  using A = acc_t<T>;
  Frame frame(ctx.arena);
  BufferSet s = slot;
  s.add(scratch_head_forward(ctx.buffers), ctx.arena, Category::workspace);
  norm_forward<T>(ctx, final_norm, w.norm, w.norm_bias, s);
  const View<const T, 2> n = s.matrix<T>(Buf::n_final);
  const View<const std::int32_t, 1> labels = s.vector<std::int32_t>(Buf::labels);
  for (std::int64_t begin = 0; begin < n.rows(); begin += ctx.buffers.head_chunk_rows) {
    const std::int64_t end = std::min(begin + ctx.buffers.head_chunk_rows, n.rows());
    const auto x = n.slice(begin, end);
    const View<A, 2> logits = first_rows(s.matrix<A>(Buf::logits), end - begin);
    const View<A, 1> loss = s.vector<A>(Buf::row_loss).slice(0, end - begin);
    const View<A, 1> z = s.vector<A>(Buf::row_z).slice(0, end - begin);
    View<T, 2> d_logits;
    if constexpr (std::is_same_v<T, A>)
      d_logits = g ? logits : View<T, 2>();
    else
      d_logits = g ? first_rows(s.matrix<T>(Buf::d_logits), end - begin) : View<T, 2>();
    linear_forward<T, A>(ctx, x, w.output, {}, logits);
    cross_entropy<T>(ctx.stream, logits, labels.slice(begin, end), scale.per_label, scale.z_coefficient, loss, z,
                     d_logits);
    sum_into<A>(ctx.stream, loss, loss_sum);
    sum_into<A>(ctx.stream, z, z_sum);
    if (!g) continue;
    linear_backward_input<T>(ctx, d_logits, w.output, s.matrix<T>(Buf::d_n_final).slice(begin, end));
    linear_backward_weight<T>(ctx, d_logits, x, g->output, {}, s);
  }
}

template <class T>
void head_backward_input(Context<T>& ctx, const HeadTensors<const T>& w, const HeadTensors<acc_t<T>>& g,
                         const BufferSet& slot, View<T, 2> dx) {
  Frame frame(ctx.arena);
  BufferSet s = slot;
  s.add(scratch_head_backward(ctx.buffers), ctx.arena, Category::workspace);
  norm_backward<T>(ctx, final_norm, w.norm, g.norm, g.norm_bias, s.matrix<T>(Buf::d_n_final), {}, dx, s);
}

template <class T>
void head_logits(Context<T>& ctx, const HeadTensors<const T>& w, View<const T, 2> x, View<T, 2> n,
                 View<acc_t<T>, 1> mean, View<acc_t<T>, 1> rstd, View<acc_t<T>, 2> logits) {
  const double epsilon = ctx.spec().options.norm_epsilon;
  if (ctx.spec().layernorm())
    layernorm_forward<T>(ctx.stream, x, w.norm, w.norm_bias, epsilon, n, mean, rstd);
  else
    rmsnorm_forward<T>(ctx.stream, x, w.norm, epsilon, n, rstd);
  linear_forward<T, acc_t<T>>(ctx, n, w.output, {}, logits);
}

#define FORGE_INSTANTIATE(T)                                                                                   \
  template void head_forward<T>(Context<T>&, const HeadTensors<const T>&, const HeadTensors<acc_t<T>>*,        \
                                const BufferSet&, LossScale, View<double, 1>, View<double, 1>);                \
  template void head_backward_input<T>(Context<T>&, const HeadTensors<const T>&, const HeadTensors<acc_t<T>>&, \
                                       const BufferSet&, View<T, 2>);                                          \
  template void head_logits<T>(Context<T>&, const HeadTensors<const T>&, View<const T, 2>, View<T, 2>,         \
                               View<acc_t<T>, 1>, View<acc_t<T>, 1>, View<acc_t<T>, 2>);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

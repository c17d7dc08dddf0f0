#include "nn/head.hpp"

#include "nn/norm.hpp"
#include "nn/rows.hpp"

namespace forge {

namespace {

template <class P>
NormBuffers norm_of(const HeadTensors<P>& w) {
  return {Buf::x_final, Buf::mean_final, Buf::rstd_final, Buf::n_final, w.rms_norm};
}

// The first `rows` rows of a chunk buffer.
template <class P>
View<P, 2> first_rows(View<P, 2> buffer, std::int64_t rows) {
  return buffer.slice(0, rows);
}

// Loss of a chunk, and its gradient in the place of d_logits.
template <class T>
void chunk_loss(Context<T>& ctx, const BufferSet& s, View<acc_t<T>, 2> logits, View<const std::int32_t, 1> labels,
                VocabularyPart vocabulary, LossScale scale, View<acc_t<T>, 1> loss, View<acc_t<T>, 1> z,
                View<T, 2> d_logits) {
  using A = acc_t<T>;
  const int tp = ctx.groups.tp_size();
  if (tp == 1)
    return cross_entropy<T>(ctx.stream, logits, labels, scale.per_label, scale.z_coefficient, loss, z, d_logits);
  const View<A, 2> all = first_rows(s.matrix<A>(Buf::token_stats), tp * logits.rows());
  const View<A, 2> own = own_rows(ctx.groups, all);
  cross_entropy_statistics<T>(ctx.stream, logits, vocabulary.rows, labels, vocabulary.first, own);
  ctx.groups.tp->all_gather(ctx.stream, View<const A, 2>(own), all);
  cross_entropy_from_statistics<T>(ctx.stream, logits, vocabulary.rows, labels, vocabulary.first, all, tp,
                                   scale.per_label, scale.z_coefficient, loss, z, d_logits);
}

}  // namespace

template <class T>
void final_norm_forward(Context<T>& ctx, const HeadTensors<const T>& w, const BufferSet& slot) {
  norm_forward<T>(ctx, norm_of(w), w.norm, w.norm_bias, slot);
}

template <class T>
void head_forward(Context<T>& ctx, const HeadTensors<const T>& w, const HeadTensors<acc_t<T>>* g, const BufferSet& slot,
                  VocabularyPart vocabulary, LossScale scale, View<double, 1> loss_sum, View<double, 1> z_sum) {
  using A = acc_t<T>;
  Frame frame(ctx.arena);
  BufferSet s = slot;
  s.add(scratch_head_forward(ctx.buffers), ctx.arena, Category::workspace);
  const View<const T, 2> n = gather_rows<T>(ctx, s.matrix<T>(Buf::n_final), s);
  const View<T, 2> d_own = s.matrix<T>(Buf::d_n_final);
  const View<T, 2> d_n = ctx.groups.tp_size() > 1 ? s.matrix<T>(Buf::d_head_rows) : d_own;
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
    chunk_loss<T>(ctx, s, logits, labels.slice(begin, end), vocabulary, scale, loss, z, d_logits);
    sum_into<A>(ctx.stream, loss, loss_sum);
    sum_into<A>(ctx.stream, z, z_sum);
    if (!g) continue;
    linear_backward_input<T>(ctx, d_logits, w.output, d_n.slice(begin, end));
    linear_backward_weight<T>(ctx, d_logits, x, g->output);
  }
  if (g) reduce_rows(ctx, d_n, d_own);
}

template <class T>
void head_backward_input(Context<T>& ctx, const HeadTensors<const T>& w, const HeadTensors<acc_t<T>>& g,
                         const BufferSet& slot, View<T, 2> dx) {
  Frame frame(ctx.arena);
  BufferSet s = slot;
  s.add(scratch_head_backward(ctx.buffers), ctx.arena, Category::workspace);
  norm_backward<T>(ctx, norm_of(w), w.norm, g.norm, g.norm_bias, s.matrix<T>(Buf::d_n_final), {}, dx, s);
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

#define FORGE_INSTANTIATE(T)                                                                                    \
  template void final_norm_forward<T>(Context<T>&, const HeadTensors<const T>&, const BufferSet&);              \
  template void head_forward<T>(Context<T>&, const HeadTensors<const T>&, const HeadTensors<acc_t<T>>*,         \
                                const BufferSet&, VocabularyPart, LossScale, View<double, 1>, View<double, 1>); \
  template void head_backward_input<T>(Context<T>&, const HeadTensors<const T>&, const HeadTensors<acc_t<T>>&,  \
                                       const BufferSet&, View<T, 2>);                                           \
  template void head_logits<T>(Context<T>&, const HeadTensors<const T>&, View<const T, 2>, View<T, 2>,          \
                               View<acc_t<T>, 1>, View<acc_t<T>, 1>, View<acc_t<T>, 2>);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

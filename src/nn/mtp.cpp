#include "nn/mtp.hpp"

#include "nn/embedding.hpp"
#include "nn/linear.hpp"

namespace forge {

namespace {

// The two halves of (S, 2C).
template <class T>
View<T, 2> embedding_half(const View<T, 2>& both) {
  return columns_of(both, 0, both.columns() / 2);
}
template <class T>
View<T, 2> hidden_half(const View<T, 2>& both) {
  return columns_of(both, both.columns() / 2, both.columns() / 2);
}

template <class T>
void normalise_both(Context<T>& ctx, const MtpTensors<const T>& w, View<const T, 2> hidden, const BufferSet& s) {
  using A = acc_t<T>;
  const double epsilon = ctx.spec().options.norm_epsilon;
  const View<T, 2> in = s.matrix<T>(Buf::mtp_in);
  rmsnorm_forward<T>(ctx.stream, s.matrix<T>(Buf::mtp_embedding), w.embedding_norm, epsilon, embedding_half(in),
                     s.vector<A>(Buf::mtp_embedding_rstd));
  rmsnorm_forward<T>(ctx.stream, hidden, w.hidden_norm, epsilon, hidden_half(in), s.vector<A>(Buf::mtp_hidden_rstd));
}

}  // namespace

template <class T>
void mtp_input_forward(Context<T>& ctx, const MtpTensors<const T>& w, View<const T, 2> hidden, const BufferSet& s) {
  normalise_both(ctx, w, hidden, s);
  linear_forward<T>(ctx, s.matrix<T>(Buf::mtp_in), w.projection, {}, s.matrix<T>(Buf::x));
}

template <class T>
void mtp_input_recompute(Context<T>& ctx, const MtpTensors<const T>& w, View<const T, 2> hidden, const BufferSet& s) {
  if (ctx.buffers.recompute != Recompute::none) normalise_both(ctx, w, hidden, s);
}

template <class T>
void mtp_input_backward(Context<T>& ctx, std::int64_t layer, const MtpTensors<const T>& w,
                        const MtpTensors<acc_t<T>>& g, const EmbeddingTensors<acc_t<T>>& table, View<const T, 2> hidden,
                        const BufferSet& s, View<const T, 2> d_x, View<T, 2> d_hidden) {
  using A = acc_t<T>;
  const View<T, 2> d_in = s.matrix<T>(Buf::d_mtp_in), d_embedding = s.matrix<T>(Buf::d_norm);
  const View<A, 2> partial(s.vector<A>(Buf::partial).data, {{norm_partial_rows(d_x.rows()), d_x.columns()}});
  const auto backward = [&](View<const T, 2> dy, View<const T, 2> x, View<const T, 1> weight, Buf rstd, View<A, 1> dw,
                            View<const T, 2> residual, View<T, 2> dx) {
    rmsnorm_weight_gradient<T>(ctx.stream, dy, x, s.vector<A>(rstd), partial, dw);
    rmsnorm_backward<T>(ctx.stream, dy, x, weight, s.vector<A>(rstd), residual, dx);
  };
  linear_backward_input<T>(ctx, d_x, w.projection, d_in);
  backward(hidden_half(d_in), hidden, w.hidden_norm, Buf::mtp_hidden_rstd, g.hidden_norm, d_hidden, d_hidden);
  backward(embedding_half(d_in), s.matrix<T>(Buf::mtp_embedding), w.embedding_norm, Buf::mtp_embedding_rstd,
           g.embedding_norm, {}, d_embedding);
  embed_backward_weight<T>(ctx, table, s, d_embedding, layer);
}

template <class T>
void mtp_input_backward_weight(Context<T>& ctx, const MtpTensors<acc_t<T>>& g, const BufferSet& s,
                               View<const T, 2> d_x) {
  linear_backward_weight<T>(ctx, d_x, s.matrix<T>(Buf::mtp_in), g.projection);
}

#define FORGE_INSTANTIATE(T)                                                                                         \
  template void mtp_input_forward<T>(Context<T>&, const MtpTensors<const T>&, View<const T, 2>, const BufferSet&);   \
  template void mtp_input_recompute<T>(Context<T>&, const MtpTensors<const T>&, View<const T, 2>, const BufferSet&); \
  template void mtp_input_backward<T>(Context<T>&, std::int64_t, const MtpTensors<const T>&,                         \
                                      const MtpTensors<acc_t<T>>&, const EmbeddingTensors<acc_t<T>>&,                \
                                      View<const T, 2>, const BufferSet&, View<const T, 2>, View<T, 2>);             \
  template void mtp_input_backward_weight<T>(Context<T>&, const MtpTensors<acc_t<T>>&, const BufferSet&,             \
                                             View<const T, 2>);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

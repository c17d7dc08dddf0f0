#include "nn/mtp.hpp"

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

}  // namespace

template <class T>
void MtpInput<T>::normalise() const {
  const double epsilon = ctx.spec().options.norm_epsilon;
  rmsnorm_forward<T>(ctx.stream, b.embedding, w.embedding_norm, epsilon, embedding_half(b.in), b.embedding_rstd);
  rmsnorm_forward<T>(ctx.stream, hidden, w.hidden_norm, epsilon, hidden_half(b.in), b.hidden_rstd);
}

template <class T>
void MtpInput<T>::forward(const EmbeddingParameters<const T>& table, View<T, 2> x) {
  Embedding<T>{ctx, batch, layer}.forward(table, b.embedding);
  Frame frame(ctx.arena);
  BufferLister dropped(ctx.buffers, BufferLister::Part::recomputed);
  b.list(dropped);
  allocate(ctx.arena, dropped.list);
  normalise();
  linear_forward<T>(ctx, b.in, w.projection, {}, x);
}

template <class T>
void MtpInput<T>::recompute() const {
  if (ctx.buffers.recompute.has(Recompute::norms)) normalise();
}

template <class T>
void MtpInput<T>::backward_input(const EmbeddingParameters<acc_t<T>>& table, View<const T, 2> d_x,
                                 View<T, 2> d_hidden) const {
  Frame frame(ctx.arena);
  const auto s = workspace<MtpScratch<T>>(ctx);
  const auto partial = norm_sums(s.rows, d_x.rows(), d_x.columns());
  linear_backward_input<T>(ctx, d_x, w.projection, s.d_in);
  const View<const T, 2> d_state = hidden_half(s.d_in), d_embedding = embedding_half(s.d_in);
  rmsnorm_backward<T>(ctx.stream, d_state, hidden, w.hidden_norm, b.hidden_rstd, d_hidden, d_hidden, partial,
                      g.hidden_norm);
  rmsnorm_backward<T>(ctx.stream, d_embedding, b.embedding, w.embedding_norm, b.embedding_rstd, {}, s.d_embedding,
                      partial, g.embedding_norm);
  Embedding<T>{ctx, batch, layer}.backward_weight(table, s.d_embedding);
}

template <class T>
void MtpInput<T>::backward_weight(View<const T, 2> d_x) const {
  linear_backward_weight<T>(ctx, d_x, b.in, g.projection);
}

FORGE_INSTANTIATE_CLASS(MtpInput);

}  // namespace forge

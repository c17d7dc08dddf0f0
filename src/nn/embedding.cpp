#include "nn/embedding.hpp"

#include "nn/branch.hpp"

namespace forge {

template <class T>
void Embedding<T>::forward(const EmbeddingParameters<const T>& w, View<T, 2> out) const {
  Frame frame(ctx.arena);
  const auto s = workspace<EmbeddingScratch<T>>(ctx);
  const View<T, 2> partial = partial_rows(ctx, s.rows, out);
  // The sum over tp takes positions from one rank.
  const View<const T, 2> positions = ctx.groups.tp_rank() == 0 ? w.positions : View<const T, 2>();
  embedding_forward<T>(ctx.stream, batch.tokens, w.tokens, batch.table_positions(), positions, partial,
                       ctx.spec().options.embedding_scale);
  reduce_rows(ctx, partial, out);
  if (ctx.dropout_rate() > 0) dropout<T>(ctx.stream, out, out, dropout_of(ctx, layer, DropoutPlace::embedding, batch));
}

template <class T>
void Embedding<T>::backward_weight(const EmbeddingParameters<acc_t<T>>& g, View<T, 2> d_out) const {
  Frame frame(ctx.arena);
  const auto s = workspace<EmbeddingScratch<T>>(ctx);
  if (ctx.dropout_rate() > 0)
    dropout<T>(ctx.stream, d_out, d_out, dropout_of(ctx, layer, DropoutPlace::embedding, batch));
  if (!g.tokens.empty())
    embedding_backward<T>(ctx.stream, batch.tokens, batch.token_order, gather_rows<T>(ctx, d_out, s.rows), g.tokens,
                          ctx.spec().options.embedding_scale);
  if (!g.positions.empty())
    embedding_backward<T>(ctx.stream, own_rows(ctx.groups, batch.table_positions()), batch.position_order, d_out,
                          g.positions);
}

FORGE_INSTANTIATE_CLASS(Embedding);

}  // namespace forge

#include "nn/embedding.hpp"

#include "nn/rows.hpp"

namespace forge {

namespace {

template <class T>
Dropout dropout_of(const Context<T>& ctx, const BufferSet& s, std::int64_t layer) {
  return {ctx.dropout_rate(), ctx.dropout_key(layer, DropoutPlace::embedding),
          own_rows(ctx.groups, s.vector<std::int64_t>(Buf::samples)),
          own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions))};
}

template <class T>
BufferSet with_scratch(Context<T>& ctx, const BufferSet& slot) {
  BufferSet s = slot;
  s.add(scratch_embedding(ctx.buffers), ctx.arena, Category::workspace);
  return s;
}

}  // namespace

template <class T>
void embed_forward(Context<T>& ctx, const EmbeddingTensors<const T>& w, const BufferSet& slot, View<T, 2> out,
                   std::int64_t layer) {
  Frame frame(ctx.arena);
  const BufferSet s = with_scratch(ctx, slot);
  const View<T, 2> partial = partial_rows(ctx, s, out);
  // The sum over tp takes positions from one rank.
  const View<const T, 2> positions = ctx.groups.tp_rank() == 0 ? w.positions : View<const T, 2>();
  embedding_forward<T>(ctx.stream, s.vector<std::int32_t>(Buf::tokens), w.tokens,
                       s.vector<std::int32_t>(Buf::positions), positions, partial);
  reduce_rows(ctx, partial, out);
  if (ctx.dropout_rate() > 0) dropout<T>(ctx.stream, out, out, dropout_of(ctx, s, layer));
}

template <class T>
void embed_backward_weight(Context<T>& ctx, const EmbeddingTensors<acc_t<T>>& g, const BufferSet& slot,
                           View<T, 2> d_out, std::int64_t layer) {
  Frame frame(ctx.arena);
  const BufferSet s = with_scratch(ctx, slot);
  if (ctx.dropout_rate() > 0) dropout<T>(ctx.stream, d_out, d_out, dropout_of(ctx, s, layer));
  embedding_backward<T>(ctx.stream, s.vector<std::int32_t>(Buf::tokens), s.vector<std::int32_t>(Buf::token_order),
                        gather_rows<T>(ctx, d_out, s), g.tokens);
  if (!g.positions.empty())
    embedding_backward<T>(ctx.stream, own_rows(ctx.groups, s.vector<std::int32_t>(Buf::positions)),
                          s.vector<std::int32_t>(Buf::position_order), d_out, g.positions);
}

#define FORGE_INSTANTIATE(T)                                                                                           \
  template void embed_forward<T>(Context<T>&, const EmbeddingTensors<const T>&, const BufferSet&, View<T, 2>,          \
                                 std::int64_t);                                                                        \
  template void embed_backward_weight<T>(Context<T>&, const EmbeddingTensors<acc_t<T>>&, const BufferSet&, View<T, 2>, \
                                         std::int64_t);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

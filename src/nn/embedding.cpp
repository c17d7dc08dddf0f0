#include "nn/embedding.hpp"

namespace forge {

namespace {

template <class T>
Dropout dropout_of(const Context<T>& ctx, const BufferSet& s) {
  return {ctx.dropout_rate(), ctx.dropout_key(-1, DropoutPlace::embedding), s.vector<std::int64_t>(Buf::samples),
          s.vector<std::int32_t>(Buf::positions)};
}

}  // namespace

template <class T>
void embed_forward(Context<T>& ctx, const EmbeddingTensors<const T>& w, const BufferSet& slot, View<T, 2> out) {
  embedding_forward<T>(ctx.stream, slot.vector<std::int32_t>(Buf::tokens), w.tokens,
                       slot.vector<std::int32_t>(Buf::positions), w.positions, out);
  if (ctx.dropout_rate() > 0) dropout<T>(ctx.stream, out, out, dropout_of(ctx, slot));
}

template <class T>
void embed_backward_weight(Context<T>& ctx, const EmbeddingTensors<acc_t<T>>& g, const BufferSet& slot,
                           View<T, 2> d_out) {
  if (ctx.dropout_rate() > 0) dropout<T>(ctx.stream, d_out, d_out, dropout_of(ctx, slot));
  embedding_backward<T>(ctx.stream, slot.vector<std::int32_t>(Buf::tokens), slot.vector<std::int32_t>(Buf::token_order),
                        d_out, g.tokens);
  if (!g.positions.empty())
    embedding_backward<T>(ctx.stream, slot.vector<std::int32_t>(Buf::positions),
                          slot.vector<std::int32_t>(Buf::position_order), d_out, g.positions);
}

#define FORGE_INSTANTIATE(T)                                                                                   \
  template void embed_forward<T>(Context<T>&, const EmbeddingTensors<const T>&, const BufferSet&, View<T, 2>); \
  template void embed_backward_weight<T>(Context<T>&, const EmbeddingTensors<acc_t<T>>&, const BufferSet&, View<T, 2>);
FORGE_INSTANTIATE(double)
FORGE_INSTANTIATE(float)
FORGE_INSTANTIATE(bf16)
#undef FORGE_INSTANTIATE

}  // namespace forge

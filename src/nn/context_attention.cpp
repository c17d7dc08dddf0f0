#include "nn/context_attention.hpp"

#include "model/context_buffers.hpp"
#include "nn/context_parts.hpp"

namespace forge {

namespace {

using namespace context_detail;

template <class T>
AttentionMask own_mask(const Context<T>& ctx, std::int64_t layer, const BufferSet& s) {
  const View<const std::int32_t, 1> positions = s.vector<std::int32_t>(Buf::positions);
  const View<const std::int32_t, 1> documents = s.vector<std::int32_t>(Buf::documents);
  return {positions, positions, documents, documents, ctx.spec().window(layer)};
}

// The ranks of the group are those that the buffers were sized for.
template <class T>
bool alone(const Context<T>& ctx) {
  require(ctx.groups.cp_size() == ctx.buffers.microbatch.cp, "attention: the cp group and the microbatch's cp differ");
  return ctx.groups.cp_size() == 1;
}

}  // namespace

template <class T>
void context_attention_forward(Context<T>& ctx, std::int64_t layer, const BufferSet& s,
                               const AttentionHeads<const T>& in, View<T, 3> o, View<acc_t<T>, 2> lse) {
  if (alone(ctx))
    return attention_forward<T>(ctx.stream, block_shape(ctx, layer, s), own_mask(ctx, layer, s), in.q, in.k, in.v, o,
                                lse);
  Frame frame(ctx.arena);
  BufferSet all = s;
  all.add(scratch_context_forward(ctx.buffers), ctx.arena, Category::workspace);
  if (ctx.buffers.cp_method == CpMethod::all_to_all) return head_parallel_forward<T>(ctx, layer, all, in, o, lse);
  key_forward<T>(ctx, layer, all, in, o, lse);
}

template <class T>
void context_attention_backward(Context<T>& ctx, std::int64_t layer, const BufferSet& s, View<const T, 3> d_o,
                                const AttentionHeads<const T>& in, View<const acc_t<T>, 2> lse,
                                View<const acc_t<T>, 2> delta, const AttentionHeads<T>& d) {
  using A = acc_t<T>;
  if (alone(ctx)) {
    const ModelSpec& m = ctx.spec();
    const auto sums = s.has(Buf::d_q_sums) ? heads_at(s.matrix<A>(Buf::d_q_sums), 0, m.H(), m.D()) : View<A, 3>();
    return attention_backward<T>(ctx.stream, block_shape(ctx, layer, s), own_mask(ctx, layer, s), d_o, in.q, in.k, in.v,
                                 lse, delta, d.q, d.k, d.v, sums);
  }
  Frame frame(ctx.arena);
  BufferSet all = s;
  all.add(scratch_context_backward(ctx.buffers), ctx.arena, Category::workspace);
  if (ctx.buffers.cp_method == CpMethod::all_to_all)
    return head_parallel_backward<T>(ctx, layer, all, d_o, in, lse, delta, d);
  key_backward<T>(ctx, layer, all, d_o, in, lse, delta, d);
}

#define FORGE_CONTEXT_ATTENTION(T)                                                                           \
  template void context_attention_forward<T>(Context<T>&, std::int64_t, const BufferSet&,                    \
                                             const AttentionHeads<const T>&, View<T, 3>, View<acc_t<T>, 2>); \
  template void context_attention_backward<T>(Context<T>&, std::int64_t, const BufferSet&, View<const T, 3>, \
                                              const AttentionHeads<const T>&, View<const acc_t<T>, 2>,       \
                                              View<const acc_t<T>, 2>, const AttentionHeads<T>&);
FORGE_CONTEXT_ATTENTION(double)
FORGE_CONTEXT_ATTENTION(float)
FORGE_CONTEXT_ATTENTION(bf16)
#undef FORGE_CONTEXT_ATTENTION

}  // namespace forge

#include "nn/block.plan.hpp"

namespace forge {

namespace {

// Workspace of attention, or of gated DeltaNet, in the passes of a block.
template <class T>
std::size_t attention_forward_bytes(const BufferContext& c, std::int64_t layer) {
  if (c.spec.linear(layer)) {
    const std::int64_t columns = delta_value_columns(c);
    return std::max(counted_bytes<DeltaProjections<T>>(c),
                    counted_bytes<DeltaHeads<T>>(c, columns) + counted_bytes<DeltaForward<T>>(c));
  }
  return std::max({c.spec.mla() ? counted_bytes<LatentForward<T>>(c) : 0, counted_bytes<GatedProjection<T>>(c),
                   counted_bytes<ContextForward<T>>(c)});
}
template <class T>
std::size_t attention_backward_bytes(const BufferContext& c, std::int64_t layer, std::size_t gathered) {
  if (c.spec.linear(layer)) return counted_bytes<DeltaScratch<T>>(c) + counted_bytes<DeltaBackward<T>>(c);
  return (c.spec.mla() ? counted_bytes<LatentBackward<T>>(c) : counted_bytes<AttentionScratch<T>>(c)) + gathered +
         counted_bytes<ContextBackward<T>>(c);
}

}  // namespace

std::size_t block_scratch(const BufferContext& c, std::int64_t layer, Pass pass, bool recompute) {
  return with_compute_type(c.precision, [&](auto type) -> std::size_t {
    using T = decltype(type);
    const auto forward = [&] {
      BlockBuffers<T> block;
      return counted_bytes<BlockForward<T>>(c, layer, block) + attention_forward_bytes<T>(c, layer);
    };
    const bool latent = c.spec.mla() && !c.spec.linear(layer);
    if (recompute && c.recompute == Recompute::full) return forward();
    if (recompute) return latent && c.recompute.has(Recompute::up_projections) ? counted_bytes<LatentForward<T>>(c) : 0;
    if (pass == Pass::forward) {
      BlockBuffers<T> block;
      BufferLister made(c, BufferLister::Part::recomputed);
      block.list(made, layer);
      return aligned_bytes(made.list) + forward();
    }
    const std::size_t latents = latent ? counted_bytes<AllLatents<T>>(c) : 0;
    const std::size_t weights = pass == Pass::backward_input ? 0 : counted_bytes<BlockWeight<T>>(c, layer, pass);
    if (pass == Pass::backward_weight) return weights + latents;
    const std::size_t gathered = pass == Pass::backward && !keeps_gathered(c) ? latents : 0;
    return weights +
           std::max(counted_bytes<FeedForwardBackward<T>>(c, layer), attention_backward_bytes<T>(c, layer, gathered));
  });
}

namespace {

// The parts that the policy names.
void list_partial_recompute(Segments& list, std::int64_t layer) {
  const Recompute policy = list.c.recompute;
  const bool norms = policy.has(Recompute::norms), before = norms && list.spec.norms_before();
  const bool latent = list.spec.mla() && !list.spec.linear(layer);
  if (before) list_norm(list, Pass::forward, list.S, list.spec.C());
  if (latent && norms) list_latent_norms(list);
  if (latent && policy.has(Recompute::up_projections)) list_latent_heads(list);
  if (before) list_norm(list, Pass::forward, list.S, list.spec.C());
  if (list.spec.is_moe(layer)) return list_moe_activation(list);
  if (activates_before_backward(list.c, list.rounds)) list_activation(list, list.spec.F());
}

}  // namespace

void list_block(Segments& list, std::int64_t layer, Pass pass, bool recompute) {
  const ModelSpec& s = list.spec;
  const auto attention = [&] {
    if (s.linear(layer)) return list_delta(list, layer, pass);
    s.mla() ? list_latent_attention(list, layer, pass) : list_attention(list, layer, pass);
  };
  const auto feed_forward = [&] {
    if (s.is_moe(layer)) return list_moe(list, pass, recompute);
    const bool of_input = pass == Pass::backward_input || pass == Pass::backward;
    if (of_input) list_output_gradient(list);
    list_mlp(list, pass, {s.F(), s.options.mlp_bias}, !recompute || recomputes_output(list.c), false,
             activates_in_backward(list.c, list.rounds));
  };
  list.rounds = list.c.rounding.has_block(layer);
  list.coded = list.c.rounding.has_coded_block(layer);
  list.coded_experts = list.c.rounding.has_coded_experts(layer);
  list.recomputes = recompute;
  if (recompute && list.c.recompute == Recompute::none) return;
  if (recompute && list.c.recompute != Recompute::full) return list_partial_recompute(list, layer);
  if (recompute) pass = Pass::forward;
  if (pass != Pass::forward) {
    feed_forward();
    if (pass != Pass::backward_weight) list_stream_gradient(list);
    return attention();
  }
  attention();
  list_residual_norm(list);
  feed_forward();
  if (s.norms_behind()) list_norm(list, Pass::forward, list.S, s.C());
  if (!recompute) list.over_rows("residual_add", list.S, s.C(), 2, 1);
}

}  // namespace forge

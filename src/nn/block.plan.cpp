#include "nn/block.plan.hpp"

namespace forge {

std::size_t block_scratch(const BufferContext& c, std::int64_t layer, Pass pass, bool recompute) {
  return with_compute_type(c.precision, [&](auto type) -> std::size_t {
    using T = decltype(type);
    const auto forward = [&] {
      BlockBuffers<T> block;
      return counted_bytes<BlockForward<T>>(c, layer, block) +
             std::max(c.spec.mla() ? counted_bytes<LatentForward<T>>(c) : 0, counted_bytes<ContextForward<T>>(c));
    };
    if (recompute) return c.recompute == Recompute::full ? forward() : 0;
    if (pass == Pass::forward) {
      BlockBuffers<T> block;
      BufferLister made(c, BufferLister::Part::recomputed);
      block.list(made, layer);
      return aligned_bytes(made.list) + forward();
    }
    if (pass == Pass::backward_weight) return counted_bytes<BlockWeight<T>>(c, layer);
    return std::max(counted_bytes<FeedForwardBackward<T>>(c, layer),
                    (c.spec.mla() ? counted_bytes<LatentBackward<T>>(c) : counted_bytes<AttentionScratch<T>>(c)) +
                        counted_bytes<ContextBackward<T>>(c));
  });
}

void add_block_sends(Sends& sends, std::int64_t layer, Pass pass, bool recompute) {
  if (recompute && sends.c.recompute != Recompute::full) return;
  if (recompute) pass = Pass::forward;
  add_attention_sends(sends, pass);
  sends.c.spec.is_moe(layer) ? add_moe_sends(sends, pass, recompute, sends.c.fp8.dispatches_codes(layer))
                             : add_mlp_sends(sends, pass, !recompute);
  if (!sends.c.fp8.has_block(layer)) return;
  Operations operations(sends.c);
  add_block_operations(operations, layer, pass, recompute);
  sends.amaxes(operations);
  if (pass == Pass::backward_input) add_sends_of_copies(sends);
}

namespace {

// What selective recomputation dropped: outputs of norms and activations.
void add_selective_recompute(Operations& o, std::int64_t layer) {
  add_norm_operations(o, Pass::forward, o.S, o.spec.C());
  if (o.spec.mla()) add_latent_norm_operations(o);
  add_norm_operations(o, Pass::forward, o.S, o.spec.C());
  o.spec.is_moe(layer) ? add_moe_activation_operations(o) : add_activation_operations(o, o.spec.F());
}

}  // namespace

void add_block_operations(Operations& o, std::int64_t layer, Pass pass, bool recompute) {
  const ModelSpec& s = o.spec;
  const auto attention = [&] {
    s.mla() ? add_latent_operations(o, layer, pass) : add_attention_operations(o, layer, pass);
  };
  const auto feed_forward = [&] {
    s.is_moe(layer) ? add_moe_operations(o, pass, recompute)
                    : add_mlp_operations(o, pass, s.F(), s.options.mlp_bias, !recompute);
  };
  o.fp8 = o.c.fp8.has_block(layer);
  o.coded = o.c.fp8.has_coded_block(layer);
  o.coded_experts = o.c.fp8.has_coded_experts(layer);
  o.recomputes = recompute;
  if (recompute && o.c.recompute == Recompute::none) return;
  if (recompute && o.c.recompute == Recompute::selective) return add_selective_recompute(o, layer);
  if (recompute) pass = Pass::forward;
  if (pass != Pass::forward) {
    const bool dense_dropout = pass == Pass::backward_input && s.options.dropout > 0 && !s.is_moe(layer);
    if (dense_dropout) o.over_rows("dropout", o.S, s.C(), 1, 1);
    feed_forward();
    if (pass == Pass::backward_input) add_norm_operations(o, pass, o.S, s.C());
    return attention();
  }
  attention();
  add_residual_norm_operations(o);
  feed_forward();
  if (!recompute) o.over_rows("residual_add", o.S, s.C(), 2, 1);
}

}  // namespace forge

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
  sends.c.spec.is_moe(layer) ? add_moe_sends(sends, pass, recompute) : add_mlp_sends(sends, pass, !recompute);
}

}  // namespace forge

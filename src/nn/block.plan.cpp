#include "nn/block.plan.hpp"

#include "nn/mtp.plan.hpp"

namespace forge {

namespace {

void add_norm(UnitBuilder& unit, Role weight, Role bias, const std::string& name, const std::string& hf) {
  unit.add(weight, name, hf + ".weight", {unit.spec.C()}, Initial::ones);
  if (unit.spec.layernorm()) unit.add(bias, name + "_bias", hf + ".bias", {unit.spec.C()}, Initial::zeros);
}

}  // namespace

Unit block_unit(const ModelSpec& s, std::int64_t layer) {
  UnitBuilder unit(s, UnitKind::block, layer, "layers." + std::to_string(layer));
  add_norm(unit, Role::norm1, Role::norm1_bias, "norm1", unit.hf_of_block("input_layernorm", "ln_1"));
  s.mla() ? add_latent_parameters(unit) : add_attention_parameters(unit);
  add_attention_output_parameters(unit);
  add_norm(unit, Role::norm2, Role::norm2_bias, "norm2", unit.hf_of_block("post_attention_layernorm", "ln_2"));
  s.is_moe(layer) ? add_moe_parameters(unit) : add_mlp_parameters(unit);
  if (layer >= s.L()) add_mtp_parameters(unit);
  return unit.finish();
}

template <class T>
void BlockBuffers<T>::list(BufferLister& l, std::int64_t layer) {
  l.spec.mla() ? latent.list(l) : attention.list(l);
  norm2.list(l, "norm 2 mean", "norm 2 rstd");
  l.recompute(n2, "norm 2 output", l.S, l.spec.C(), Reader::backward_weight);
  l.spec.is_moe(layer) ? moe.list(l) : mlp.list(l, l.spec.F(), false);
}

template <class T>
void BlockBuffers<T>::list_gradients(BufferLister& l, std::int64_t layer) {
  const ModelSpec& s = l.spec;
  const bool has_mlp = !s.is_moe(layer) || s.Fs() > 0, gated = s.is_moe(layer) && s.options.shared_expert_gate;
  s.mla() ? latent.list_gradients(l) : attention.list_gradients(l);
  if (s.is_moe(layer)) moe.list_gradients(l);
  if (has_mlp && (output_rows_differ(l.c) || gated))
    l.add(d_down_out, "gradient of feed-forward output", l.R, s.C(), Reader::backward_weight);
}

template <class T>
void BlockForward<T>::list(BufferLister& l, std::int64_t layer, BlockBuffers<T>& block) {
  l.add(branch, "branch output", l.S, l.spec.C());
  rows.list_rows(l);
  if (l.spec.is_moe(layer)) moe.list(l, block.moe);
}

template <class T>
void FeedForwardBackward<T>::list(BufferLister& l, std::int64_t layer) {
  l.add(d_n2, "gradient of norm output", l.S, l.spec.C());
  rows.list_partial(l, l.spec.C());
  rows.list_rows(l);
  if (l.spec.is_moe(layer))
    moe.list(l);
  else
    l.add(d_act, "gradient of the activation", l.R, l.spec.F());
}

template <class T>
void BlockWeight<T>::list(BufferLister& l, std::int64_t layer) {
  const ModelSpec& s = l.spec;
  const ModelDeck& o = s.options;
  // The widest of the biases' sums.
  const std::int64_t columns =
      std::max({o.qkv_bias ? s.qkv_columns() : 0, o.attention_out_bias || o.mlp_bias ? s.C() : 0,
                o.mlp_bias ? s.up_columns() : 0});
  if (columns > 0) rows.list_partial(l, columns);
  rows.list_rows(l);
  if (s.mla()) latents.list(l);
  if (s.is_moe(layer)) jittered.list(l);
}

template struct BlockBuffers<double>;
template struct BlockBuffers<float>;
template struct BlockBuffers<bf16>;
template struct BlockForward<double>;
template struct BlockForward<float>;
template struct BlockForward<bf16>;
template struct FeedForwardBackward<double>;
template struct FeedForwardBackward<float>;
template struct FeedForwardBackward<bf16>;
template struct BlockWeight<double>;
template struct BlockWeight<float>;
template struct BlockWeight<bf16>;

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
  const bool all = sends.c.recompute == Recompute::full;
  if (recompute && !all) return;
  if (recompute) pass = Pass::forward;
  add_attention_sends(sends, pass);
  sends.c.spec.is_moe(layer) ? add_moe_sends(sends, pass, recompute) : add_mlp_sends(sends, pass, !recompute);
}

}  // namespace forge

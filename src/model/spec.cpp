#include "model/spec.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.hpp"

namespace forge {

namespace {

void require_positive(const char* name, std::int64_t value) {
  if (value < 1) throw BadInput(std::string("model.") + name + " = " + std::to_string(value) + ": must be at least 1");
}

void resolve_latent_attention(ModelDeck& o) {
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.value_dim == 0) o.value_dim = o.nope_dim;
  if (o.head_dim == 0) o.head_dim = o.nope_dim + o.rope_dim;
  require_positive("kv_lora", o.kv_lora);
  require_positive("nope_dim", o.nope_dim);
  require_positive("rope_dim", o.rope_dim);
  if (o.kv_heads != o.heads || o.head_dim != o.nope_dim + o.rope_dim)
    throw BadInput("model.attention = mla: kv_heads must equal heads, and head_dim nope_dim + rope_dim");
}

void resolve_experts(ModelDeck& o) {
  if (o.expert_ffn == 0) o.expert_ffn = o.ffn;
  if (o.router_groups_used == 0) o.router_groups_used = o.router_groups;
  if (o.experts_per_token < 1 || o.experts_per_token > o.experts)
    throw BadInput("model.experts_per_token = " + std::to_string(o.experts_per_token) +
                   ": must be at least 1 and at most model.experts = " + std::to_string(o.experts));
}

}  // namespace

double ModelSpec::softmax_scale() const {
  const double scale =
      1 / std::sqrt(options.query_pre_attn_scalar > 0 ? options.query_pre_attn_scalar : static_cast<double>(D()));
  if (!mla() || options.rope_scaling != RopeScaling::yarn || options.rope_mscale_all_dim <= 0 ||
      options.rope_factor <= 1)
    return scale;
  const double mscale = 0.1 * options.rope_mscale_all_dim * std::log(options.rope_factor) + 1;
  return scale * mscale * mscale;
}

bool ModelSpec::is_moe(std::int64_t layer) const {
  const std::int64_t l = std::min(layer, L() - 1);
  return E() > 0 && l >= options.first_dense_layers && (l + 1) % options.moe_every == 0 &&
         !std::binary_search(options.dense_layers.begin(), options.dense_layers.end(), l);
}

std::int64_t ModelSpec::moe_layers() const {
  std::int64_t n = 0;
  for (std::int64_t layer = 0; layer < L(); ++layer) n += is_moe(layer);
  return n;
}

ModelSpec resolve_model(const ModelDeck& deck) {
  ModelSpec spec{deck};
  ModelDeck& o = spec.options;
  if (spec.mla()) resolve_latent_attention(o);
  if (spec.E() > 0) resolve_experts(o);
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.head_dim == 0 && o.heads > 0) o.head_dim = o.width / o.heads;
  for (const auto& [name, value] : {std::pair{"layers", o.layers},
                                    {"width", o.width},
                                    {"heads", o.heads},
                                    {"kv_heads", o.kv_heads},
                                    {"head_dim", o.head_dim},
                                    {"ffn", o.ffn},
                                    {"vocabulary", o.vocabulary}})
    require_positive(name, value);
  if (o.heads % o.kv_heads != 0)
    throw BadInput("model.heads = " + std::to_string(o.heads) +
                   " is no multiple of model.kv_heads = " + std::to_string(o.kv_heads));
  return spec;
}

}  // namespace forge

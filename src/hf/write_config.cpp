#include <cmath>
#include <string_view>

#include "config/family.hpp"
#include "core/error.hpp"
#include "hf/config.hpp"
#include "hf/families.hpp"
#include "hf/fp8/quantization.hpp"
#include "hf/linear_words.hpp"
#include "hf/rope.hpp"

namespace forge {

namespace {

using Json = nlohmann::ordered_json;

std::string gpt2_obstacle(const ModelDeck& m) {
  if (m.norm != NormKind::layernorm) return "norm must be layernorm";
  if (m.positions != PositionKind::learned) return "positions must be learned";
  if (is_gated(m.activation)) return "activation must be gelu, gelu_tanh or relu2";
  if (m.kv_heads != m.heads) return "kv_heads must equal heads";
  if (m.head_dim * m.heads != m.width) return "head_dim must be width / heads";
  if (!m.qkv_bias || !m.attention_out_bias || !m.mlp_bias)
    return "qkv_bias, attention_out_bias and mlp_bias must be true";
  if (m.norm_placement != NormPlacement::before) return "norm_placement must be before";
  if (m.embedding_scale != 1) return "embedding_scale must be 1";
  if (m.query_pre_attn_scalar > 0) return "query_pre_attn_scalar must be 0";
  if (m.qk_norm) return "qk_norm must be false";
  if (m.attention_sinks) return "attention_sinks must be false";
  if (m.sliding_window > 0) return "sliding_window must be 0";
  if (m.mtp_depth > 0) return "mtp_depth must be 0";
  return "";
}

std::string bias_obstacle(const ModelDeck& m, const HfBiases& keys) {
  if (m.mlp_bias && !*keys.mlp) return "mlp_bias must be false";
  if (m.attention_out_bias && !*keys.out) return "attention_out_bias must be false";
  if (*keys.qkv && keys.qkv == std::string_view(keys.out) && m.qkv_bias != m.attention_out_bias)
    return "qkv_bias and attention_out_bias must be alike";
  if (*keys.qkv || m.qkv_bias == keys.always) return "";
  return std::string("qkv_bias must be ") + (keys.always ? "true" : "false");
}

std::string experts_obstacle(const ModelDeck& m, const HfFamily& family) {
  if (!family.latent && m.attention == AttentionKind::mla) return "attention must be standard";
  if (!*family.multi_token && m.mtp_depth > 0) return "mtp_depth must be 0";
  const auto biases = [&](bool has, const char* key) {
    return has == family.expert_biases ? ""
                                       : key + std::string(family.expert_biases ? " must be true" : " must be false");
  };
  if (const std::string obstacle = biases(m.expert_bias, "expert_bias"); !obstacle.empty()) return obstacle;
  if (const std::string obstacle = biases(m.router_logit_bias, "router_logit_bias"); !obstacle.empty()) return obstacle;
  if (family.obstacle) return family.obstacle(m);
  return m.experts > 0 ? "experts must be 0" : "";
}

std::string scale_obstacle(const ModelDeck& m, const HfFamily& family) {
  if (!family.query_position_scale && m.query_position_scale > 0) return "query_position_scale must be 0";
  if (family.query_pre_attn_scalar == 0 && m.query_pre_attn_scalar > 0) return "query_pre_attn_scalar must be 0";
  if (m.query_pre_attn_scalar != std::floor(m.query_pre_attn_scalar))
    return "query_pre_attn_scalar must be a whole number";
  // transformers rounds it to the model's type.
  constexpr double rounding = 1e-6;
  const double scale = family.scaled_embeddings ? std::sqrt(static_cast<double>(m.width)) : 1;
  if (std::abs(m.embedding_scale / scale - 1) > rounding)
    return std::string("embedding_scale must be ") + (family.scaled_embeddings ? "sqrt(width)" : "1");
  return "";
}

// The parts that all but gpt2 share.
std::string rotary_obstacle(const ModelDeck& m, const HfFamily& family) {
  if (m.norm != NormKind::rmsnorm) return "norm must be rmsnorm";
  if (m.norm_placement != family.norms)
    return std::string("norm_placement must be ") + (family.norms == NormPlacement::before   ? "before"
                                                     : family.norms == NormPlacement::behind ? "behind"
                                                                                             : "both");
  if (m.positions != PositionKind::rope) return "positions must be rope";
  if (m.activation != family.activation)
    return std::string("activation must be ") + (family.activation == Activation::geglu    ? "geglu"
                                                 : family.activation == Activation::swiglu ? "swiglu"
                                                                                           : "clamped_swiglu");
  if (m.attention_sinks != family.sinks)
    return std::string("attention_sinks must be ") + (family.sinks ? "true" : "false");
  if (const auto obstacle = scale_obstacle(m, family); !obstacle.empty()) return obstacle;
  if (const auto obstacle = linear_obstacle(m, family); !obstacle.empty()) return obstacle;
  if (m.qk_norm_whole != family.qk_norm_whole)
    return std::string("qk_norm_whole must be ") + (family.qk_norm_whole ? "true" : "false");
  if (!*family.qk_norm_key && m.qk_norm != family.qk_norm)
    return std::string("qk_norm must be ") + (family.qk_norm ? "true" : "false");
  if (const auto obstacle = bias_obstacle(m, family.biases); !obstacle.empty()) return obstacle;
  if ((family.window == HfWindow::none || family.window == HfWindow::refused) && m.sliding_window > 0)
    return "sliding_window must be 0";
  if (family.window != HfWindow::from_layer && m.sliding_window_layer > 0) return "sliding_window_layer must be 0";
  if (family.window != HfWindow::by_type && m.sliding_window_full_every > 0)
    return "sliding_window_full_every must be 0";
  if (!family.rope_by_type() && m.rope_window_theta > 0) return "rope_window_theta must be 0";
  if (family.rope_by_type() && !m.rope_truncate) return "rope_truncate must be true";
  if (family.rope_fraction == 0 && m.rope_fraction != 1) return "rope_fraction must be 1";
  if (family.no_rope_every < 0 && m.no_rope_every > 0) return "no_rope_every must be 0";
  const bool longrope = m.rope_scaling == RopeScaling::longrope;
  if (family.longrope && !longrope && m.rope_scaling != RopeScaling::none)
    return "rope_scaling must be none or longrope";
  if (!family.longrope && longrope) return "rope_scaling must not be longrope";
  if (longrope && m.head_dim * m.heads != m.width) return "head_dim must be width / heads with rope_scaling = longrope";
  if (family.whole_heads && m.width % m.heads != 0) return "width must be a multiple of heads";
  return experts_obstacle(m, family);
}

void write_gpt2(const ModelDeck& m, Json& config) {
  config["n_embd"] = m.width;
  config["n_layer"] = m.layers;
  config["n_head"] = m.heads;
  config["n_inner"] = m.ffn;
  config["n_positions"] = m.max_positions;
  config["n_ctx"] = m.max_positions;
  config["activation_function"] = m.activation == Activation::gelu        ? "gelu"
                                  : m.activation == Activation::gelu_tanh ? "gelu_new"
                                                                          : "relu2";
  config["layer_norm_epsilon"] = m.norm_epsilon;
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) config[key] = m.dropout;
}

void write_window(const ModelDeck& m, const HfFamily& family, Json& config) {
  const HfWindow kind = family.window;
  const bool used = m.sliding_window > 0;
  if (kind == HfWindow::none) return;
  if (kind == HfWindow::refused) {
    config["use_sliding_window"] = false;
    return;
  }
  if (kind == HfWindow::by_type) {
    // The class asks for a window even where no layer has one.
    config["sliding_window"] = used ? m.sliding_window : family.sliding_window;
    const std::int64_t every = used ? m.sliding_window_full_every : 1;
    if (*family.full_every_key && every > 0) config[family.full_every_key] = every;
    for (std::int64_t number = 1; number <= m.layers; ++number)
      config["layer_types"].push_back(every > 0 && number % every == 0 ? "full_attention" : "sliding_attention");
    return;
  }
  config["sliding_window"] = used ? Json(m.sliding_window) : Json(nullptr);
  if (kind == HfWindow::every_layer || kind == HfWindow::every_layer_if_given) return;
  config["use_sliding_window"] = used;
  if (kind == HfWindow::from_layer) config["max_window_layers"] = used ? m.sliding_window_layer : m.layers;
}

// Readers take their family's default for max_position_embeddings where nothing is said.
void write_positions(const ModelDeck& m, std::int64_t trained, Json& config) {
  const bool stretched = m.rope_scaling == RopeScaling::llama3 || m.rope_scaling == RopeScaling::yarn ||
                         m.rope_scaling == RopeScaling::longrope;
  const std::int64_t positions =
      m.max_positions > 0 ? m.max_positions
      : stretched ? static_cast<std::int64_t>(std::ceil(static_cast<double>(m.rope_original_positions) * m.rope_factor))
                  : trained;
  if (positions > 0) config["max_position_embeddings"] = positions;
}

void write_ids(const SpecialIds& ids, Json& config) {
  const auto one = [](const std::optional<std::int32_t>& id) { return id ? Json(*id) : Json(nullptr); };
  config["bos_token_id"] = one(ids.begin);
  config["eos_token_id"] = ids.ends.empty()       ? Json(nullptr)
                           : ids.ends.size() == 1 ? Json(ids.ends.front())
                                                  : Json(ids.ends);
  config["pad_token_id"] = one(ids.padding);
}

void write_rotary_family(const ModelDeck& m, const HfFamily& family, std::int64_t trained, Json& config) {
  config["hidden_size"] = m.width;
  config["intermediate_size"] = m.ffn;
  config["num_hidden_layers"] = m.layers;
  config["num_attention_heads"] = m.heads;
  config["num_key_value_heads"] = m.kv_heads;
  if (m.attention == AttentionKind::standard) config["head_dim"] = m.head_dim;
  config[family.activation_key] = family.activation == Activation::geglu ? "gelu_pytorch_tanh" : "silu";
  if (family.query_pre_attn_scalar > 0)
    config["query_pre_attn_scalar"] =
        m.query_pre_attn_scalar > 0 ? static_cast<std::int64_t>(m.query_pre_attn_scalar) : m.head_dim;
  for (const char* key : family.refused)
    if (*key) config[key] = nullptr;
  config["rms_norm_eps"] = m.norm_epsilon;
  config["attention_dropout"] = m.dropout;
  if (*family.biases.qkv) config[family.biases.qkv] = m.qkv_bias;
  if (*family.biases.out) config[family.biases.out] = m.attention_out_bias;
  if (*family.qk_norm_key) config[family.qk_norm_key] = m.qk_norm;
  if (*family.biases.mlp) config[family.biases.mlp] = m.mlp_bias;
  write_positions(m, trained, config);
  write_window(m, family, config);
  if (family.linear) write_linear(m, config);
  if (*family.multi_token) config[family.multi_token] = m.mtp_depth;
  if (family.write_experts) family.write_experts(m, config);
  write_hf_rope(m, family, config);
}

}  // namespace

std::string hf_obstacle(const ModelDeck& model) {
  const std::string obstacle = model.attention_soft_cap > 0   ? "attention_soft_cap must be 0"
                               : model.logit_soft_cap > 0     ? "logit_soft_cap must be 0"
                               : model.family == Family::gpt2 ? gpt2_obstacle(model)
                                                              : rotary_obstacle(model, hf_family(model.family));
  return obstacle.empty() ? ""
                          : std::string("a Hugging Face model of family ") + name_of(model.family) +
                                " has no words for this model: model." + obstacle;
}

std::string write_hf_config(const ModelDeck& model, const HfFacts& facts) {
  if (const auto obstacle = hf_obstacle(model); !obstacle.empty()) throw BadInput(obstacle);
  Json config;
  const bool gpt2 = model.family == Family::gpt2;
  config["architectures"] = {gpt2 ? "GPT2LMHeadModel" : hf_family(model.family).architecture};
  config["model_type"] = name_of(model.family);
  if (gpt2)
    write_gpt2(model, config);
  else
    write_rotary_family(model, hf_family(model.family), facts.positions, config);
  config["vocab_size"] = model.vocabulary;
  config["initializer_range"] = model.initial_std;
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["use_cache"] = true;
  write_ids(facts.ids, config);
  // The words of transformers 4 and 5.
  if (!facts.dtype.empty())
    for (const char* key : {"torch_dtype", "dtype"}) config[key] = facts.dtype;
  if (facts.coded) config["quantization_config"] = quantization_config(facts.coded->plain_modules);
  return config.dump(2) + "\n";
}

}  // namespace forge

#include "hf/expert_words.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "config/router_score.hpp"
#include "config/text.hpp"
#include "core/to_size.hpp"

namespace forge {

using nlohmann::json;
using Json = nlohmann::ordered_json;

namespace {

// transformers adds its own form of the loss when it returns the router's logits; here the switch and the factor count.
double auxiliary_loss(const JsonObject& config, double fallback) {
  const double coefficient = config.amount("router_aux_loss_coef", fallback);
  return config.flag("output_router_logits", false) ? coefficient : 0;
}

// Layers without experts, in ascending order; numbers behind the last layer mean nothing.
std::vector<std::int64_t> read_dense_layers(const JsonObject& config, std::int64_t layers) {
  const json* list = config.find("mlp_only_layers");
  if (!list) return {};
  const bool good = list->is_array() && std::all_of(list->begin(), list->end(), [](const json& item) {
                      return item.is_number_integer() && item >= 0;
                    });
  if (!good) {
    config.refuse("mlp_only_layers", "legal: a list of layers, from 0");
    return {};
  }
  std::set<std::int64_t> dense;
  for (const auto& item : *list)
    if (item < layers) dense.insert(item.get<std::int64_t>());
  return {dense.begin(), dense.end()};
}

// A key that the makers' own code reads and transformers does not.
void refuse_other_word(const JsonObject& config, const char* key, const char* legal) {
  const std::string word = config.text(key, legal);
  if (word != legal) config.refuse(key, "= " + shown(word) + "; legal: " + legal);
}

}  // namespace

void read_mixtral(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  m.experts = aliased_size(config, "num_local_experts", "num_experts", absent.count);
  m.experts_per_token = config.integer("num_experts_per_tok", absent.per_token, 1, most_size);
  m.expert_ffn = m.ffn;
  m.auxiliary_loss_coefficient = auxiliary_loss(config, 0.001);
}

void read_minimax_m2(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_mixtral(config, absent, m);
  m.router_score = ScoreKind::sigmoid;
  m.router_bias = true;
  refuse_other_word(config, "scoring_func", "sigmoid");
  refuse_other_word(config, "qk_norm_type", "per_layer");
  for (const char* key : {"use_qk_norm", "use_routing_bias"})
    if (!config.flag(key, true)) config.refuse(key, "= false: not available; legal: true");
  const char* const shared = "shared_intermediate_size";
  if (config.integer(shared, 0, 0, most_size) > 0)
    config.refuse(shared, "= " + shown_json(*config.find(shared)) + ": not available; legal: 0");
  if (const json* const kinds = config.find("attn_type_list");
      kinds && (std::ssize(*kinds) != m.layers || *kinds != json(kinds->size(), 1)))
    config.refuse("attn_type_list", "legal: a list of 1, full attention in every layer");
}

void read_gpt_oss(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_mixtral(config, absent, m);
  m.expert_bias = m.router_logit_bias = true;
  m.activation_limit = config.number("swiglu_limit", m.activation_limit, 0);
  m.activation_alpha = config.number("swiglu_alpha", m.activation_alpha, 0);
}

void read_olmoe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  m.experts = aliased_size(config, "num_experts", "num_local_experts", absent.count);
  m.experts_per_token = config.integer("num_experts_per_tok", absent.per_token, 1, most_size);
  m.expert_ffn = m.ffn;
  m.router_renormalise = config.flag("norm_topk_prob", false);
  m.auxiliary_loss_coefficient = auxiliary_loss(config, 0.01);
}

namespace {

// Of Qwen's families; with 0 experts every layer is dense.
void read_qwen_experts(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  m.experts = aliased_size(config, "num_experts", "num_local_experts", absent.count, 0);
  if (m.experts == 0) return;
  m.experts_per_token = config.integer("num_experts_per_tok", absent.per_token, 1, most_size);
  m.expert_ffn = config.integer("moe_intermediate_size", absent.ffn, 1, most_size);
  m.moe_every = config.integer("decoder_sparse_step", 1, 1, most_size);
  m.dense_layers = read_dense_layers(config, m.layers);
  m.router_renormalise = config.flag("norm_topk_prob", absent.renormalise);
  m.auxiliary_loss_coefficient = auxiliary_loss(config, 0.001);
}

}  // namespace

void read_qwen3_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  const std::int64_t shared = config.integer("shared_expert_intermediate_size", 0, 0, most_size);
  if (shared > 0)
    config.refuse("shared_expert_intermediate_size",
                  "= " + std::to_string(shared) + ", which this model_type has not; legal: 0");
  read_qwen_experts(config, absent, m);
}

void read_qwen2_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_qwen_experts(config, absent, m);
  if (m.experts == 0) return;
  m.shared_expert_ffn = config.integer("shared_expert_intermediate_size", absent.shared, 1, most_size);
  m.shared_expert_gate = true;
}

// Its class knows layers with experts alone, and divides the weights by their sum.
void read_qwen3_5_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  m.experts = config.integer("num_experts", absent.count, 1, most_size);
  m.experts_per_token = config.integer("num_experts_per_tok", absent.per_token, 1, most_size);
  m.expert_ffn = config.integer("moe_intermediate_size", absent.ffn, 1, most_size);
  m.shared_expert_ffn = config.integer("shared_expert_intermediate_size", absent.shared, 1, most_size);
  m.shared_expert_gate = m.router_renormalise = true;
  m.auxiliary_loss_coefficient = auxiliary_loss(config, 0.001);
}

// Its class divides the weights by their sum, whatever norm_topk_prob says.
void read_qwen3_vl_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_qwen_experts(config, absent, m);
  if (m.experts > 0) m.router_renormalise = true;
}

namespace {

void read_latent_attention(const JsonObject& config, ModelDeck& m) {
  m.attention = AttentionKind::mla;
  // Here null has a meaning of its own: queries come straight from the residual stream.
  m.q_lora = config.is_null("q_lora_rank") ? 0 : config.integer("q_lora_rank", 1536, 1, most_size);
  m.kv_lora = config.integer("kv_lora_rank", 512, 1, most_size);
  m.nope_dim = config.integer("qk_nope_head_dim", 128, 1, most_size);
  m.rope_dim = config.integer("qk_rope_head_dim", 64, 1, most_size);
  m.value_dim = config.integer("v_head_dim", 128, 1, most_size);
  m.latent_norm_epsilon = deepseek_latent_epsilon;
  // head_dim and num_key_value_heads are not read.
  m.head_dim = m.nope_dim + m.rope_dim;
  m.kv_heads = m.heads;
  if (config.flag("attention_bias", false)) config.refuse("attention_bias", "= true: not available; legal: false");
}

// What the families with shared experts of the routed ones' width have alike.
void read_routed_experts(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  m.expert_ffn = config.integer("moe_intermediate_size", absent.ffn, 1, most_size);
  m.experts_per_token = config.integer("num_experts_per_tok", absent.per_token, 1, most_size);
  m.first_dense_layers = std::min(config.integer("first_k_dense_replace", absent.dense, 0, most_size), m.layers);
  m.router_scale = config.number("routed_scaling_factor", absent.scale, 0);
  m.auxiliary_loss_coefficient = auxiliary_loss(config, 0);
  if (config.integer("moe_layer_freq", 1, 1, most_size) != 1)
    config.refuse("moe_layer_freq", "= " + shown_json(*config.find("moe_layer_freq")) + "; legal: 1");
}

}  // namespace

void read_sigmoid_experts(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_routed_experts(config, absent, m);
  m.experts = aliased_size(config, "n_routed_experts", "num_local_experts", absent.count);
  m.shared_expert_ffn = m.expert_ffn * config.integer("n_shared_experts", absent.shared, 0, 1 << 20);
  m.router_score = ScoreKind::sigmoid;
  m.router_renormalise = config.flag("norm_topk_prob", true);
  m.router_groups = config.integer("n_group", absent.groups, 1, most_size);
  m.router_groups_used = config.integer("topk_group", absent.groups_used, 1, most_size);
  m.router_bias = true;
  refuse_other_word(config, "scoring_func", "sigmoid");
  refuse_other_word(config, "topk_method", "noaux_tc");
}

void read_deepseek_v3(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_latent_attention(config, m);
  m.rope_interleave = config.flag("rope_interleave", true);
  read_sigmoid_experts(config, absent, m);
}

// The class takes groups where topk_method says so, and never divides the weights by their sum.
void read_deepseek_v2(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& m) {
  read_latent_attention(config, m);
  m.rope_interleave = true;
  read_routed_experts(config, absent, m);
  m.experts = aliased_size(config, "n_routed_experts", "num_experts", absent.count);
  const bool groups = config.text("topk_method", "greedy") == "group_limited_greedy";
  if (!groups) refuse_other_word(config, "topk_method", "greedy");
  for (const char* key : {"num_experts_per_tok", "n_group", "topk_group"})
    if (!config.has(key) && (groups || key == std::string_view("num_experts_per_tok")))
      config.refuse(key, "missing; legal: integer, 1 or more");
  m.shared_expert_ffn = m.expert_ffn * config.integer("n_shared_experts", absent.shared, 1, 1 << 20);
  m.router_renormalise = false;
  if (groups) {
    m.router_groups = config.integer("n_group", 1, 1, most_size);
    m.router_groups_used = config.integer("topk_group", 1, 1, most_size);
    if (m.router_groups > 1) m.router_group_score = GroupScoreKind::max;
  }
  for (const char* key : {"norm_topk_prob", "mlp_bias"})
    if (config.flag(key, false)) config.refuse(key, "= true: not available with this model_type; legal: false");
  refuse_other_word(config, "scoring_func", "softmax");
}

namespace {

void write_auxiliary_loss(const ModelDeck& m, Json& config) {
  config["output_router_logits"] = m.auxiliary_loss_coefficient > 0;
  config["router_aux_loss_coef"] = m.auxiliary_loss_coefficient;
}

}  // namespace

void write_mixtral(const ModelDeck& m, Json& config) {
  config["intermediate_size"] = m.expert_ffn;
  config["num_local_experts"] = m.experts;
  config["num_experts_per_tok"] = m.experts_per_token;
  config["router_jitter_noise"] = m.router_jitter;
  write_auxiliary_loss(m, config);
}

void write_minimax_m2(const ModelDeck& m, Json& config) {
  write_mixtral(m, config);
  config["scoring_func"] = "sigmoid";
  config["use_routing_bias"] = true;
  config["use_qk_norm"] = true;
  config["qk_norm_type"] = "per_layer";
  config["shared_intermediate_size"] = 0;
  config["attn_type_list"] = std::vector<int>(to_size(m.layers), 1);
}

void write_gpt_oss(const ModelDeck& m, Json& config) {
  config["intermediate_size"] = m.expert_ffn;
  config["num_local_experts"] = m.experts;
  for (const char* key : {"num_experts_per_tok", "experts_per_token"}) config[key] = m.experts_per_token;
  config["swiglu_limit"] = m.activation_limit;
  config["swiglu_alpha"] = m.activation_alpha;
  write_auxiliary_loss(m, config);
}

void write_olmoe(const ModelDeck& m, Json& config) {
  config["intermediate_size"] = m.expert_ffn;
  config["num_experts"] = m.experts;
  config["num_experts_per_tok"] = m.experts_per_token;
  config["norm_topk_prob"] = m.router_renormalise;
  config["clip_qkv"] = nullptr;
  write_auxiliary_loss(m, config);
}

void write_qwen3_moe(const ModelDeck& m, Json& config) {
  std::set<std::int64_t> dense(m.dense_layers.begin(), m.dense_layers.end());
  for (std::int64_t layer = 0; layer < m.first_dense_layers; ++layer) dense.insert(layer);
  config["num_experts"] = m.experts;
  config["num_experts_per_tok"] = std::max<std::int64_t>(m.experts_per_token, 1);
  config["moe_intermediate_size"] = m.expert_ffn > 0 ? m.expert_ffn : m.ffn;
  config["norm_topk_prob"] = m.router_renormalise;
  config["decoder_sparse_step"] = m.moe_every;
  config["mlp_only_layers"] = dense;
  write_auxiliary_loss(m, config);
}

void write_qwen3_5_moe(const ModelDeck& m, Json& config) {
  config["num_experts"] = m.experts;
  config["num_experts_per_tok"] = m.experts_per_token;
  config["moe_intermediate_size"] = m.expert_ffn;
  config["shared_expert_intermediate_size"] = m.shared_expert_ffn;
  write_auxiliary_loss(m, config);
}

void write_qwen2_moe(const ModelDeck& m, Json& config) {
  write_qwen3_moe(m, config);
  if (m.experts > 0) config["shared_expert_intermediate_size"] = m.shared_expert_ffn;
}

namespace {

void write_latent_attention(const ModelDeck& m, Json& config) {
  config["q_lora_rank"] = m.q_lora > 0 ? Json(m.q_lora) : Json(nullptr);
  config["kv_lora_rank"] = m.kv_lora;
  config["qk_nope_head_dim"] = m.nope_dim;
  config["qk_rope_head_dim"] = m.rope_dim;
  config["v_head_dim"] = m.value_dim;
  config["attention_bias"] = false;
}

void write_routed_experts(const ModelDeck& m, Json& config) {
  config["n_routed_experts"] = m.experts;
  config["num_experts_per_tok"] = m.experts_per_token;
  config["moe_intermediate_size"] = m.expert_ffn;
  config["n_shared_experts"] = m.shared_expert_ffn / m.expert_ffn;
  config["first_k_dense_replace"] = m.first_dense_layers;
  config["n_group"] = m.router_groups;
  config["topk_group"] = m.router_groups_used;
  config["norm_topk_prob"] = m.router_renormalise;
  config["routed_scaling_factor"] = m.router_scale;
  write_auxiliary_loss(m, config);
}

}  // namespace

void write_sigmoid_experts(const ModelDeck& m, Json& config) {
  write_routed_experts(m, config);
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
}

void write_deepseek_v3(const ModelDeck& m, Json& config) {
  write_latent_attention(m, config);
  write_sigmoid_experts(m, config);
  config["rope_interleave"] = m.rope_interleave;
}

void write_deepseek_v2(const ModelDeck& m, Json& config) {
  write_latent_attention(m, config);
  write_routed_experts(m, config);
  config["scoring_func"] = "softmax";
  config["topk_method"] = m.router_groups > 1 ? "group_limited_greedy" : "greedy";
}

std::int64_t aliased_size(const JsonObject& config, const char* key, const char* alias, std::int64_t fallback,
                          std::int64_t least) {
  const std::int64_t own = config.integer(key, fallback, least, most_size);
  const std::int64_t other = config.integer(alias, own, least, most_size);
  if (config.has(key) && other != own)
    config.refuse(key, "= " + std::to_string(own) + " but " + alias + " = " + std::to_string(other));
  return other;
}

}  // namespace forge

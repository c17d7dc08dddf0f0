#include "config/router_score.hpp"
#include "hf/expert_words.hpp"

namespace forge {

// Of the router that mixtral and qwen3_moe have.
std::string plain_router_obstacle(const ModelDeck& m) {
  if (m.shared_expert_ffn > 0) return "shared_expert_ffn must be 0";
  if (m.router_score != ScoreKind::softmax) return "router_score must be softmax";
  if (m.router_scale != 1) return "router_scale must be 1";
  if (m.router_groups > 1) return "router_groups must be 1";
  if (m.router_bias) return "router_bias must be false";
  return "";
}

namespace {

// Of families whose layers all have experts.
std::string layers_obstacle(const ModelDeck& m) {
  if (m.experts == 0) return "experts must be at least 1";
  if (m.first_dense_layers > 0 || m.moe_every > 1 || !m.dense_layers.empty())
    return "first_dense_layers, moe_every and dense_layers must leave no layer without experts";
  return "";
}
std::string all_experts_obstacle(const ModelDeck& m) {
  const std::string obstacle = layers_obstacle(m);
  return obstacle.empty() ? plain_router_obstacle(m) : obstacle;
}

}  // namespace

std::string mixtral_obstacle(const ModelDeck& m) {
  if (m.experts > 0 && !m.router_renormalise) return "router_renormalise must be true";
  return all_experts_obstacle(m);
}

std::string minimax_m2_obstacle(const ModelDeck& m) {
  if (const std::string obstacle = layers_obstacle(m); !obstacle.empty()) return obstacle;
  if (m.router_score != ScoreKind::sigmoid || !m.router_bias)
    return "router_score must be sigmoid and router_bias true";
  if (!m.router_renormalise) return "router_renormalise must be true";
  ModelDeck plain = m;
  plain.router_score = ScoreKind::softmax;
  plain.router_bias = false;
  return plain_router_obstacle(plain);
}

std::string olmoe_obstacle(const ModelDeck& m) {
  if (m.head_dim * m.heads != m.width) return "head_dim must be width / heads";
  return all_experts_obstacle(m);
}

namespace {

std::string routed_experts_obstacle(const ModelDeck& m) {
  if (m.experts == 0) return "experts must be at least 1";
  if (m.moe_every > 1 || !m.dense_layers.empty()) return "moe_every must be 1 and dense_layers empty";
  if (m.shared_expert_gate) return "shared_expert_gate must be false";
  if (m.shared_expert_ffn % m.expert_ffn != 0) return "shared_expert_ffn must be a multiple of expert_ffn";
  return "";
}

std::string latent_obstacle(const ModelDeck& m) {
  if (m.attention != AttentionKind::mla) return "attention must be mla";
  if (m.latent_norm_epsilon != deepseek_latent_epsilon) return "latent_norm_epsilon must be 1e-6";
  return "";
}

}  // namespace

std::string sigmoid_experts_obstacle(const ModelDeck& m) {
  if (const std::string obstacle = routed_experts_obstacle(m); !obstacle.empty()) return obstacle;
  if (m.router_score != ScoreKind::sigmoid || !m.router_bias)
    return "router_score must be sigmoid and router_bias true";
  if (m.router_group_score != GroupScoreKind::top2_sum) return "router_group_score must be top2_sum";
  return "";
}

std::string deepseek_v3_obstacle(const ModelDeck& m) {
  const std::string obstacle = latent_obstacle(m);
  return obstacle.empty() ? sigmoid_experts_obstacle(m) : obstacle;
}

std::string deepseek_v2_obstacle(const ModelDeck& m) {
  if (const std::string obstacle = latent_obstacle(m); !obstacle.empty()) return obstacle;
  if (const std::string obstacle = routed_experts_obstacle(m); !obstacle.empty()) return obstacle;
  if (!m.rope_interleave) return "rope_interleave must be true";
  if (m.router_score != ScoreKind::softmax || m.router_bias)
    return "router_score must be softmax and router_bias false";
  if (m.router_renormalise) return "router_renormalise must be false";
  if (m.router_groups > 1 && m.router_group_score != GroupScoreKind::max) return "router_group_score must be max";
  if (m.shared_expert_ffn == 0) return "shared_expert_ffn must be at least 1";
  return "";
}

std::string qwen2_moe_obstacle(const ModelDeck& m) {
  if (m.experts == 0) return "";
  if (m.shared_expert_ffn == 0) return "shared_expert_ffn must be at least 1";
  if (!m.shared_expert_gate) return "shared_expert_gate must be true";
  ModelDeck without = m;
  without.shared_expert_ffn = 0;
  return plain_router_obstacle(without);
}

std::string qwen3_5_moe_obstacle(const ModelDeck& m) {
  if (const std::string obstacle = layers_obstacle(m); !obstacle.empty()) return obstacle;
  return m.router_renormalise ? qwen2_moe_obstacle(m) : "router_renormalise must be true";
}

}  // namespace forge

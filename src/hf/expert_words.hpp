#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "hf/families.hpp"

// The words of a config.json for experts, and for the attention of the families that have latents: reading, writing,
// and why a model has no words there (hf/families.hpp has the rows).

namespace forge {

// Added in the norms of latents by the classes of deepseek_v2 and deepseek_v3, without regard to rms_norm_eps.
inline constexpr double deepseek_latent_epsilon = 1e-6;

void read_mixtral(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_minimax_m2(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_gpt_oss(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_olmoe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_qwen3_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_qwen2_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_qwen3_5_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_qwen3_vl_moe(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_sigmoid_experts(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_deepseek_v3(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);
void read_deepseek_v2(const JsonObject& config, const HfExpertSizes& absent, ModelDeck& model);

void write_mixtral(const ModelDeck& model, nlohmann::ordered_json& config);
void write_minimax_m2(const ModelDeck& model, nlohmann::ordered_json& config);
void write_gpt_oss(const ModelDeck& model, nlohmann::ordered_json& config);
void write_olmoe(const ModelDeck& model, nlohmann::ordered_json& config);
void write_qwen3_moe(const ModelDeck& model, nlohmann::ordered_json& config);
void write_qwen2_moe(const ModelDeck& model, nlohmann::ordered_json& config);
void write_qwen3_5_moe(const ModelDeck& model, nlohmann::ordered_json& config);
void write_sigmoid_experts(const ModelDeck& model, nlohmann::ordered_json& config);
void write_deepseek_v3(const ModelDeck& model, nlohmann::ordered_json& config);
void write_deepseek_v2(const ModelDeck& model, nlohmann::ordered_json& config);

// Why the model's router isn't the one of mixtral and qwen3_moe; "": it is. Then the reasons by family.
std::string plain_router_obstacle(const ModelDeck& model);
std::string mixtral_obstacle(const ModelDeck& model);
std::string minimax_m2_obstacle(const ModelDeck& model);
std::string olmoe_obstacle(const ModelDeck& model);
std::string qwen2_moe_obstacle(const ModelDeck& model);
std::string qwen3_5_moe_obstacle(const ModelDeck& model);
std::string sigmoid_experts_obstacle(const ModelDeck& model);
std::string deepseek_v3_obstacle(const ModelDeck& model);
std::string deepseek_v2_obstacle(const ModelDeck& model);

}  // namespace forge

#include "hf/adapter_config.hpp"

#include <nlohmann/json.hpp>

#include "../config/support.hpp"
#include "config/family.hpp"

namespace forge {
namespace {

using nlohmann::json;
using test::expect_bad_input;

ModelDeck adapted(Family family, std::vector<std::string> targets = {}) {
  ModelDeck model;
  model.family = family;
  model.experts = family == Family::llama ? 0 : 4;
  model.adapter.name = AdapterName::lora;
  model.adapter.targets = std::move(targets);
  return model;
}

json written(const ModelDeck& model) {
  return json::parse(write_adapter_config(model));
}

void check(const ModelDeck& model, const json& config) {
  const test::Directory directory;
  directory.write("adapter_config.json", config.dump());
  check_adapter_config(directory.path(), model);
}

using Names = std::vector<std::string>;

// PEFT moves names of experts' matrices to the packed tensors, and leaves the dense and the shared ones out.
TEST(AdapterConfig, DenseAndSharedMatricesBesideExpertsAreParameters) {
  ModelDeck glm = adapted(Family::glm4_moe);
  glm.first_dense_layers = 1;
  glm.shared_expert_ffn = 8;
  EXPECT_EQ(written(glm)["target_modules"],
            (Names{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  EXPECT_EQ(
      written(glm)["target_parameters"],
      (Names{"mlp.down_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "shared_experts.down_proj.weight",
             "shared_experts.gate_proj.weight", "shared_experts.up_proj.weight"}));
  ModelDeck qwen = adapted(Family::qwen3_moe, {"q_proj", "down_proj"});
  EXPECT_FALSE(written(qwen).contains("target_parameters")) << "every layer has experts, none of which is shared";
  qwen.dense_layers = {2};
  EXPECT_EQ(written(qwen)["target_parameters"], (Names{"mlp.down_proj.weight"}));
  EXPECT_FALSE(written(adapted(Family::llama)).contains("target_parameters"));
  EXPECT_FALSE(written(adapted(Family::mixtral)).contains("target_parameters")) << "w1, w2 and w3 are experts' alone";
}

// PEFT finds tensors of gate and up only where down is a target.
TEST(AdapterConfig, GateAndUpOfExpertsBringDown) {
  EXPECT_EQ(written(adapted(Family::mixtral, {"w1", "w3"}))["target_parameters"], (Names{"experts.down_proj"}));
  EXPECT_EQ(written(adapted(Family::olmoe, {"gate_proj", "up_proj"}))["target_parameters"],
            (Names{"experts.down_proj"}));
  EXPECT_FALSE(written(adapted(Family::llama, {"gate_proj", "up_proj"})).contains("target_parameters"));
}

// Of qwen2_moe PEFT leaves the names as they are.
TEST(AdapterConfig, PackedExpertsByTheirNames) {
  ModelDeck qwen2 = adapted(Family::qwen2_moe);
  qwen2.shared_expert_ffn = 8;
  qwen2.adapter.rank = 3;
  qwen2.adapter.alpha = 7;
  EXPECT_EQ(written(qwen2)["target_parameters"], (Names{"experts.down_proj", "experts.gate_up_proj"}));
  EXPECT_EQ(written(qwen2)["rank_pattern"], (json{{".*\\.gate_up_proj", 6}}));
  EXPECT_EQ(written(qwen2)["alpha_pattern"], (json{{".*\\.gate_up_proj", 14}}));
  EXPECT_NO_THROW(check(qwen2, written(qwen2)));
  qwen2.adapter.targets = {"down_proj"};
  EXPECT_EQ(written(qwen2)["target_parameters"], (Names{"experts.down_proj"}));
  EXPECT_FALSE(written(qwen2).contains("rank_pattern"));
  qwen2.adapter.targets = {"k_proj"};
  EXPECT_FALSE(written(qwen2).contains("target_parameters"));
}

// PEFT doubles alpha and r of experts' gates and ups, which keeps alpha / r alone.
TEST(AdapterConfig, BesideExpertsAlphaIsOverTheRank) {
  ModelDeck model = adapted(Family::mixtral);
  model.adapter.rank_stabilised = true;
  model.adapter.rank = 16;
  model.adapter.alpha = 5;
  json config = written(model);
  EXPECT_EQ(config["use_rslora"], false);
  EXPECT_EQ(config["lora_alpha"], 20);
  EXPECT_NO_THROW(check(model, config));
  config["use_rslora"] = true;
  config["lora_alpha"] = 5;
  EXPECT_NO_THROW(check(model, config)) << "of earlier files";
  config["lora_alpha"] = 20;
  expect_bad_input([&] { check(model, config); }, {"lora_alpha = 20, and adapter.alpha = 5 (--set adapter.alpha)"});
  model.family = Family::llama;
  model.experts = 0;
  EXPECT_EQ(written(model)["use_rslora"], true);
  EXPECT_EQ(written(model)["lora_alpha"], 5);
}

TEST(AdapterConfig, ReadsItsOwnOfTodayAndBefore) {
  ModelDeck glm = adapted(Family::glm4_moe);
  glm.first_dense_layers = 1;
  json config = written(glm);
  EXPECT_NO_THROW(check(glm, config));
  config.erase("target_parameters");
  EXPECT_NO_THROW(check(glm, config));
  config["target_parameters"] = json::array();
  EXPECT_NO_THROW(check(glm, config));
  config["target_parameters"] = {"mlp.experts.gate_up_proj"};
  expect_bad_input([&] { check(glm, config); }, {"target_parameters = [mlp.experts.gate_up_proj]",
                                                 "legal: absent, or [mlp.down_proj.weight, mlp.g"});
  const ModelDeck llama = adapted(Family::llama);
  config = written(llama);
  config["target_parameters"] = "q_proj.weight";
  expect_bad_input([&] { check(llama, config); }, {"target_parameters = 'q_proj.weight'", "legal: absent"});
  config["target_parameters"] = nullptr;
  EXPECT_NO_THROW(check(llama, config));
  config["rank_pattern"] = {{"q_proj", 4}};
  expect_bad_input([&] { check(llama, config); }, {"rank_pattern", "legal: absent"});
}

}  // namespace
}  // namespace forge

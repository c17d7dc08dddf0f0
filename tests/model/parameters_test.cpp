#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "config/family.hpp"
#include "models.hpp"
#include "nn/units.plan.hpp"

namespace forge {
namespace {

using Shape = std::vector<std::int64_t>;

ModelDeck small_mla() {
  ModelDeck m = test::moe_deck({3, 32, 48, 24, 4, 0, 6, 2, 2, 97, 1}, 0);
  m.family = Family::deepseek_v3;
  m.attention = AttentionKind::mla;
  m.q_lora = 20, m.kv_lora = 12, m.nope_dim = 6, m.rope_dim = 4, m.value_dim = 10;
  m.router_bias = true;
  return m;
}

std::map<std::string, Shape> hf_shapes(const ModelDeck& deck) {
  std::map<std::string, Shape> shapes;
  for (const Unit& unit : parameter_units(resolve_model(deck)))
    for (const Parameter& p : unit.parameters)
      EXPECT_TRUE(shapes.emplace(p.hf_name, p.shape).second) << p.hf_name << " twice";
  return shapes;
}

TEST(Parameters, PublishedSizes) {
  for (const test::Published& p : test::published_models()) {
    const double count = static_cast<double>(parameter_count(parameter_units(resolve_model(p.model)))) / 1e9;
    EXPECT_NEAR(count, p.billions, p.digits) << p.name;
  }
}

TEST(Parameters, ActiveParameters) {
  const auto active = [](const char* name) {
    for (const test::Published& p : test::published_models())
      if (std::string(p.name) == name) return static_cast<double>(active_parameter_count(resolve_model(p.model))) / 1e9;
    return 0.0;
  };
  EXPECT_NEAR(active("KempnerForge MoE-S"), 2.63, 0.005);
  // Published with the embedding's table, which no product uses.
  EXPECT_NEAR(active("Qwen3-30B-A3B") + 151936 * 2048e-9, 3.35, 0.005);
  EXPECT_NEAR(active("Mixtral 8x7B") + 32000 * 4096e-9, 12.88, 0.005);
}

TEST(Parameters, NamesAreUnique) {
  ModelDeck mtp = small_mla();
  mtp.mtp_depth = 2;
  for (const ModelDeck& deck : {small_mla(), mtp, test::moe_deck({3, 32, 48, 24, 4, 2, 6, 2, 1, 97, 1}, 8)}) {
    std::set<std::string> names;
    for (const Unit& unit : parameter_units(resolve_model(deck)))
      for (const Parameter& p : unit.parameters) EXPECT_TRUE(names.insert(p.name).second) << p.name;
    for (const RouterBias& b : router_biases(resolve_model(deck))) EXPECT_TRUE(names.insert(b.name).second) << b.name;
    hf_shapes(deck);
  }
}

TEST(Parameters, MixtralNames) {
  ModelDeck m = test::moe_deck({2, 32, 24, 24, 4, 2, 3, 2, 0, 97, 0}, 8);
  m.family = Family::mixtral;
  const auto shapes = hf_shapes(m);
  const std::string layer = "model.layers.1.block_sparse_moe.";
  EXPECT_EQ(shapes.at(layer + "gate.weight"), (Shape{3, 32}));
  EXPECT_EQ(shapes.at(layer + "experts.2.w1.weight"), (Shape{24, 32}));
  EXPECT_EQ(shapes.at(layer + "experts.2.w2.weight"), (Shape{32, 24}));
  EXPECT_EQ(shapes.at(layer + "experts.0.w3.weight"), (Shape{24, 32}));
  EXPECT_EQ(shapes.size(), 3 + 2 * (6 + 1 + 9u));
}

TEST(Parameters, Qwen3MoeNames) {
  ModelDeck m = test::with_head_norms(test::moe_deck({2, 32, 48, 24, 4, 2, 3, 2, 0, 97, 0}, 8));
  m.family = Family::qwen3_moe;
  m.dense_layers = {0};
  const auto shapes = hf_shapes(m);
  EXPECT_EQ(shapes.at("model.layers.0.mlp.gate_proj.weight"), (Shape{48, 32}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.gate.weight"), (Shape{3, 32}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.experts.2.gate_proj.weight"), (Shape{24, 32}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.experts.2.down_proj.weight"), (Shape{32, 24}));
  EXPECT_EQ(shapes.count("model.layers.0.mlp.gate.weight"), 0u);
}

TEST(Parameters, MultiTokenNamesOfQwen3Next) {
  ModelDeck m = test::with_head_norms(test::moe_deck({2, 32, 48, 24, 4, 2, 3, 2, 0, 97, 0}, 8));
  m.family = Family::qwen3_next;
  m.full_attention_interval = 2;
  m.linear_key_heads = m.linear_value_heads = m.linear_key_dim = m.linear_value_dim = 4;
  m.mtp_depth = 1;
  const auto shapes = hf_shapes(m);
  EXPECT_EQ(shapes.at("mtp.fc.weight"), (Shape{32, 64}));
  for (const char* norm : {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight"})
    EXPECT_EQ(shapes.at(norm), (Shape{32})) << norm;
  EXPECT_EQ(shapes.at("mtp.layers.0.self_attn.q_norm.weight"), (Shape{8}));
  EXPECT_EQ(shapes.at("mtp.layers.0.mlp.experts.2.down_proj.weight"), (Shape{32, 24}));
  for (const Unit& unit : parameter_units(resolve_model(m)))
    for (const Parameter& p : unit.parameters) {
      if (!p.hf_name.starts_with("mtp.")) continue;
      EXPECT_EQ(p.hf_offset, p.shape.size() == 1 ? 1 : 0) << p.hf_name;
    }
}

// Two tensors that have several matrices, each of which tp ranks share for itself.
TEST(Parameters, Phi3Names) {
  ModelDeck m = test::moe_deck({2, 32, 48, 0, 4, 2, 0, 0, 0, 97, 0}, 8);
  m.family = Family::phi3;
  const auto shapes = hf_shapes(m);
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.qkv_proj.weight"), (Shape{64, 32}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.gate_up_proj.weight"), (Shape{96, 32}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.down_proj.weight"), (Shape{32, 48}));
  EXPECT_EQ(shapes.size(), 3 + 2 * 6u);
}

TEST(Parameters, DeepseekNames) {
  const auto shapes = hf_shapes(small_mla());
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_EQ(shapes.at(attention + "q_a_proj.weight"), (Shape{20, 32}));
  EXPECT_EQ(shapes.at(attention + "q_a_layernorm.weight"), (Shape{20}));
  EXPECT_EQ(shapes.at(attention + "q_b_proj.weight"), (Shape{40, 20}));
  EXPECT_EQ(shapes.at(attention + "kv_a_proj_with_mqa.weight"), (Shape{16, 32}));
  EXPECT_EQ(shapes.at(attention + "kv_a_layernorm.weight"), (Shape{12}));
  EXPECT_EQ(shapes.at(attention + "kv_b_proj.weight"), (Shape{64, 12}));
  EXPECT_EQ(shapes.at(attention + "o_proj.weight"), (Shape{32, 40}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.shared_experts.up_proj.weight"), (Shape{48, 32}));
  EXPECT_EQ(shapes.at("model.layers.1.mlp.shared_experts.down_proj.weight"), (Shape{32, 48}));
  EXPECT_EQ(shapes.at("model.layers.2.mlp.experts.5.up_proj.weight"), (Shape{24, 32}));
  const auto biases = router_biases(resolve_model(small_mla()));
  ASSERT_EQ(biases.size(), 2u) << "layer 0 is dense";
  EXPECT_EQ(biases[0].layer, 1);
  EXPECT_EQ(biases[1].hf_name, "model.layers.2.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(shapes.count(biases[1].hf_name), 0u) << "no parameter of the optimizer";
  ModelDeck direct = small_mla();
  direct.q_lora = 0;
  EXPECT_EQ(hf_shapes(direct).at(attention + "q_proj.weight"), (Shape{40, 32}));
  EXPECT_EQ(hf_shapes(direct).count(attention + "q_a_proj.weight"), 0u);
}

// Experts are a unit of their own, right behind their block: gate and up expert by expert, then every down.
TEST(Parameters, ExpertUnits) {
  const ModelSpec spec = resolve_model(small_mla());
  const auto units = parameter_units(spec);
  int experts = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].kind != UnitKind::experts) continue;
    ++experts;
    EXPECT_EQ(units[u - 1].kind, UnitKind::block);
    EXPECT_EQ(units[u - 1].layer, units[u].layer);
    const auto& p = units[u].parameters;
    ASSERT_EQ(p.size(), 18u);
    EXPECT_EQ(p[2].name, "layers." + std::to_string(units[u].layer) + ".experts.1.gate");
    EXPECT_EQ(p[3].name, "layers." + std::to_string(units[u].layer) + ".experts.1.up");
    EXPECT_EQ(p[12].name, "layers." + std::to_string(units[u].layer) + ".experts.0.down");
    for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(p[i].group, i < 12 ? 0u : 1u);
  }
  EXPECT_EQ(experts, 2);
}

TEST(Parameters, ExportNeedsANameForEachOfThem) {
  ModelDeck deck = test::moe_deck({2, 32, 48, 0, 4, 4, 0, 0, 0, 97, 0}, 8);
  deck.family = Family::llama;
  const ModelSpec spec = resolve_model(deck);
  std::vector<Unit> units = parameter_units(spec);
  EXPECT_EQ(export_obstacle(spec.options, units), "");
  std::vector<Parameter> changed = units[1].parameters.all();
  changed.back().hf_name.clear();
  units[1].parameters = changed;
  EXPECT_EQ(export_obstacle(spec.options, units),
            "Hugging Face models of family llama have no parameter " + units[1].parameters.back().name);
}

TEST(Parameters, MultiTokenPrediction) {
  ModelDeck m = small_mla();
  m.mtp_depth = 1;
  const auto shapes = hf_shapes(m);
  EXPECT_EQ(shapes.at("model.layers.3.eh_proj.weight"), (Shape{32, 64}));
  for (const char* norm : {"enorm", "hnorm", "shared_head.norm"})
    EXPECT_EQ(shapes.at(std::string("model.layers.3.") + norm + ".weight"), (Shape{32}));
  EXPECT_EQ(shapes.at("model.layers.3.mlp.experts.5.down_proj.weight"), (Shape{32, 24}));
  EXPECT_EQ(active_parameter_count(resolve_model(m)), active_parameter_count(resolve_model(small_mla())));
}

}  // namespace
}  // namespace forge

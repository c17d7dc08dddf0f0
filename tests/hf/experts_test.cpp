#include <nlohmann/json.hpp>

#include "../config/support.hpp"
#include "config/check_parts.hpp"
#include "config/family.hpp"
#include "config/router_score.hpp"
#include "hf/config.hpp"

// config.json of mixtral, qwen3_moe and deepseek_v3.

namespace forge {
namespace {

using nlohmann::json;
using test::expect_bad_input;

ModelDeck read(const json& config, const ModelDeck& deck = {}) {
  const test::Directory directory;
  directory.write("config.json", config.dump());
  return read_hf_config(directory.path(), deck);
}

json small(const char* family, const json& changes = json::object()) {
  json config = {{"model_type", family},         {"vocab_size", 97},       {"hidden_size", 32},
                 {"intermediate_size", 56},      {"num_hidden_layers", 5}, {"num_attention_heads", 4},
                 {"max_position_embeddings", 64}};
  if (std::string(family) == "deepseek_v3")
    config.update({{"q_lora_rank", 20},
                   {"kv_lora_rank", 12},
                   {"qk_nope_head_dim", 6},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 10},
                   {"n_routed_experts", 8},
                   {"moe_intermediate_size", 16},
                   {"n_shared_experts", 2},
                   {"num_experts_per_tok", 3},
                   {"n_group", 4},
                   {"topk_group", 2}});
  else
    config.update({{"num_key_value_heads", 2}});
  config.update(changes);
  return config;
}

// The file as another list of keys has it: some left out, some added.
json without(json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) config.erase(key);
  return config;
}

void expect_refused(const json& config, std::initializer_list<const char*> parts) {
  expect_bad_input([&] { read(config); }, parts);
}

void expect_legal(ModelDeck model) {
  Report report;
  check_model(model, 16, report);
  EXPECT_NO_THROW(report.throw_if_any("the deck"));
}

TEST(HfExperts, ClassDefaults) {
  const ModelDeck mixtral = read({{"model_type", "mixtral"}});
  EXPECT_EQ(mixtral.width, 4096);
  EXPECT_EQ(mixtral.ffn, 14336);
  EXPECT_EQ(mixtral.expert_ffn, 14336);
  EXPECT_EQ(mixtral.kv_heads, 8);
  EXPECT_EQ(mixtral.experts, 8);
  EXPECT_EQ(mixtral.experts_per_token, 2);
  EXPECT_EQ(mixtral.norm_epsilon, 1e-5);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  EXPECT_EQ(mixtral.sliding_window, 0) << "unlike mistral's class";
  EXPECT_EQ(mixtral.auxiliary_loss_coefficient, 0) << "the router's logits are not asked for";
  EXPECT_TRUE(mixtral.router_renormalise);
  EXPECT_EQ(mixtral.router_score, ScoreKind::softmax);

  const ModelDeck qwen = read({{"model_type", "qwen3_moe"}});
  EXPECT_EQ(qwen.width, 2048);
  EXPECT_EQ(qwen.layers, 24);
  EXPECT_EQ(qwen.kv_heads, 4);
  EXPECT_EQ(qwen.head_dim, 64) << "width / heads, unlike qwen3's class";
  EXPECT_EQ(qwen.experts, 128);
  EXPECT_EQ(qwen.experts_per_token, 8);
  EXPECT_EQ(qwen.expert_ffn, 768);
  EXPECT_FALSE(qwen.router_renormalise);
  EXPECT_TRUE(qwen.qk_norm);
  EXPECT_EQ(qwen.rope_theta, 10000);

  const ModelDeck deepseek = read({{"model_type", "deepseek_v3"}});
  EXPECT_EQ(deepseek.layers, 61);
  EXPECT_EQ(deepseek.heads, 128);
  EXPECT_EQ(deepseek.head_dim, 192);
  EXPECT_EQ(deepseek.q_lora, 1536);
  EXPECT_EQ(deepseek.kv_lora, 512);
  EXPECT_EQ(deepseek.experts, 256);
  EXPECT_EQ(deepseek.expert_ffn, 2048);
  EXPECT_EQ(deepseek.shared_expert_ffn, 2048);
  EXPECT_EQ(deepseek.first_dense_layers, 3);
  EXPECT_EQ(deepseek.router_groups, 8);
  EXPECT_EQ(deepseek.router_groups_used, 4);
  EXPECT_EQ(deepseek.router_scale, 2.5);
  EXPECT_TRUE(deepseek.router_renormalise && deepseek.router_bias && deepseek.rope_interleave);
  EXPECT_EQ(deepseek.mtp_depth, 0) << "only the deck asks for multi-token prediction";
  for (const ModelDeck& m : {mixtral, qwen, deepseek}) expect_legal(m);
}

TEST(HfExperts, BothNamesOfTheNumberOfExperts) {
  EXPECT_EQ(read(small("qwen3_moe", {{"num_experts", 16}})).experts, 16) << "transformers 4";
  EXPECT_EQ(read(small("qwen3_moe", {{"num_local_experts", 16}})).experts, 16) << "transformers 5";
  EXPECT_EQ(read(small("qwen3_moe", {{"num_local_experts", 16}, {"num_experts", 16}})).experts, 16);
  EXPECT_EQ(read(small("qwen3_moe", {{"num_local_experts", nullptr}, {"num_experts", 16}})).experts, 16);
  expect_refused(small("qwen3_moe", {{"num_local_experts", 8}, {"num_experts", 16}}),
                 {"num_experts = 16 but num_local_experts = 8"});
  EXPECT_EQ(read(small("mixtral", {{"num_experts", 5}})).experts, 5);
  EXPECT_EQ(read(without(small("deepseek_v3", {{"num_local_experts", 16}}), {"n_routed_experts"})).experts, 16);
  const ModelDeck dense = read(small("qwen3_moe", {{"num_experts", 0}}));
  EXPECT_EQ(dense.experts, 0);
  expect_legal(dense);
  expect_refused(small("mixtral", {{"num_local_experts", 0}}), {"num_local_experts = 0"});
}

TEST(HfExperts, LayersWithoutExperts) {
  const ModelDeck m = read(small("qwen3_moe", {{"mlp_only_layers", {3, 1, 3, 9}}, {"decoder_sparse_step", 2}}));
  EXPECT_EQ(m.dense_layers, (std::vector<std::int64_t>{1, 3})) << "sorted, once, within the layers";
  EXPECT_EQ(m.moe_every, 2);
  EXPECT_TRUE(read(small("qwen3_moe", {{"mlp_only_layers", nullptr}})).dense_layers.empty());
  expect_refused(small("qwen3_moe", {{"mlp_only_layers", {-1}}}), {"mlp_only_layers: legal: a list of layers, from 0"});
  expect_refused(small("qwen3_moe", {{"mlp_only_layers", {"a"}}}), {"mlp_only_layers"});
  expect_refused(small("qwen3_moe", {{"mlp_only_layers", 2}}), {"mlp_only_layers: legal"});
  EXPECT_EQ(read(small("deepseek_v3", {{"first_k_dense_replace", 1}})).first_dense_layers, 1);
  EXPECT_EQ(read(small("deepseek_v3", {{"first_k_dense_replace", 9}})).first_dense_layers, 5) << "every layer";
}

TEST(HfExperts, Window) {
  EXPECT_EQ(read(small("mixtral", {{"sliding_window", 9}})).sliding_window, 9);
  EXPECT_EQ(read(small("mixtral", {{"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_EQ(read(small("qwen3_moe", {{"sliding_window", 9}})).sliding_window, 0) << "off by default";
  const ModelDeck m =
      read(small("qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 3}}));
  EXPECT_EQ(m.sliding_window, 9);
  EXPECT_EQ(m.sliding_window_layer, 0) << "in every layer, unlike qwen3's";
  EXPECT_EQ(read(small("qwen3_moe", {{"use_sliding_window", true}})).sliding_window, 4096);
  EXPECT_EQ(read(small("deepseek_v3", {{"sliding_window", 9}})).sliding_window, 0);
}

TEST(HfExperts, LatentAttention) {
  const ModelDeck m = read(small("deepseek_v3", {{"head_dim", 4}, {"num_key_value_heads", 1}, {"rms_norm_eps", 1e-3}}));
  EXPECT_EQ(m.attention, AttentionKind::mla);
  EXPECT_EQ(m.head_dim, 10) << "nope + rope; the file's head_dim is not read";
  EXPECT_EQ(m.kv_heads, 4) << "nor is num_key_value_heads";
  EXPECT_EQ(m.value_dim, 10);
  EXPECT_EQ(m.shared_expert_ffn, 32);
  EXPECT_EQ(m.norm_epsilon, 1e-3);
  EXPECT_EQ(m.latent_norm_epsilon, 1e-6) << "the class's own, whatever rms_norm_eps is";
  expect_legal(m);
  EXPECT_EQ(read(small("deepseek_v3", {{"q_lora_rank", nullptr}})).q_lora, 0) << "null: no latent";
  EXPECT_EQ(read(without(small("deepseek_v3"), {"q_lora_rank"})).q_lora, 1536) << "absent: the default";
  EXPECT_FALSE(read(small("deepseek_v3", {{"rope_interleave", false}})).rope_interleave);
  EXPECT_EQ(read(small("deepseek_v3", {{"n_shared_experts", 0}})).shared_expert_ffn, 0);
}

// As DeepSeek-V3's own file has it, with keys that transformers doesn't know.
TEST(HfExperts, DeepseekFileInItsOldForm) {
  const json yarn = {{"type", "yarn"},
                     {"factor", 40},
                     {"beta_fast", 32},
                     {"beta_slow", 1},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"original_max_position_embeddings", 4096}};
  const ModelDeck m = read(small("deepseek_v3", {{"scoring_func", "sigmoid"},
                                                 {"topk_method", "noaux_tc"},
                                                 {"moe_layer_freq", 1},
                                                 {"aux_loss_alpha", 0.001},
                                                 {"seq_aux", true},
                                                 {"ep_size", 1},
                                                 {"num_nextn_predict_layers", 1},
                                                 {"rope_theta", 10000},
                                                 {"rope_scaling", yarn}}));
  EXPECT_EQ(m.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(m.rope_mscale_all_dim, 1);
  EXPECT_EQ(m.rope_original_positions, 4096);
  EXPECT_EQ(m.auxiliary_loss_coefficient, 0);
  expect_legal(m);
}

TEST(HfExperts, RefusesWhatItCannotDo) {
  expect_refused(small("deepseek_v3", {{"scoring_func", "softmax"}}), {"scoring_func = 'softmax'; legal: sigmoid"});
  expect_refused(small("deepseek_v3", {{"topk_method", "greedy"}}), {"topk_method = 'greedy'; legal: noaux_tc"});
  expect_refused(small("deepseek_v3", {{"moe_layer_freq", 2}}), {"moe_layer_freq = 2; legal: 1"});
  expect_refused(small("deepseek_v3", {{"attention_bias", true}}), {"attention_bias = true", "legal: false"});
  expect_refused(small("deepseek_v3", {{"q_lora_rank", 0}}), {"q_lora_rank = 0"});
  expect_refused(small("deepseek_v3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mscale_all_dim", 1}}}}),
                 {"mscale_all_dim", "without yarn"});
  expect_refused(small("qwen3_moe", {{"shared_expert_intermediate_size", 16}}),
                 {"shared_expert_intermediate_size = 16", "legal: 0"});
}

TEST(HfExperts, AuxiliaryLossCountsWithTheRoutersLogits) {
  EXPECT_EQ(read(small("mixtral", {{"router_aux_loss_coef", 0.02}})).auxiliary_loss_coefficient, 0);
  for (const char* family : {"mixtral", "qwen3_moe", "deepseek_v3"})
    EXPECT_EQ(read(small(family, {{"router_aux_loss_coef", 0.02}, {"output_router_logits", true}}))
                  .auxiliary_loss_coefficient,
              0.02);
  EXPECT_EQ(read(small("qwen3_moe", {{"output_router_logits", true}})).auxiliary_loss_coefficient, 0.001);
  ModelDeck deck;
  deck.auxiliary_loss_coefficient = 0.5;
  const json config = small("mixtral", {{"router_aux_loss_coef", 0.02}, {"output_router_logits", true}});
  EXPECT_EQ(read(config, deck).auxiliary_loss_coefficient, 0.02) << "the deck doesn't have the key";
  deck.given = {"auxiliary_loss_coefficient"};
  EXPECT_EQ(read(config, deck).auxiliary_loss_coefficient, 0.5);
}

TEST(HfExperts, WhatTrainingDoesIsTheDecksOwn) {
  ModelDeck deck;
  deck.auxiliary_loss_scope = AuxiliaryScope::microbatch;
  deck.router_bias_rate = 1e-3;
  deck.router_z_coefficient = 1e-4;
  deck.router_jitter = 0.1;
  deck.forced_balance = true;
  deck.capacity_factor = 1.25;
  deck.capacity_drop = CapacityDrop::probability;
  deck.mtp_depth = 1;
  deck.mtp_loss_factor = 0.3;
  deck.given = {"auxiliary_loss_scope", "router_bias_rate", "router_z_coefficient",
                "router_jitter",        "forced_balance",   "capacity_factor",
                "capacity_drop",        "mtp_depth",        "mtp_loss_factor"};
  const ModelDeck m = read(small("deepseek_v3", {{"router_jitter_noise", 0.7}}), deck);
  EXPECT_EQ(m.auxiliary_loss_scope, AuxiliaryScope::microbatch);
  EXPECT_EQ(m.router_bias_rate, 1e-3);
  EXPECT_EQ(m.router_z_coefficient, 1e-4);
  EXPECT_EQ(m.router_jitter, 0.1);
  EXPECT_TRUE(m.forced_balance);
  EXPECT_EQ(m.capacity_factor, 1.25);
  EXPECT_EQ(m.capacity_drop, CapacityDrop::probability);
  EXPECT_EQ(m.mtp_depth, 1);
  EXPECT_EQ(m.mtp_loss_factor, 0.3);
  deck.experts = 16;
  deck.given = {"experts"};
  expect_bad_input([&] { read(small("deepseek_v3"), deck); }, {"model.experts = 16", "config.json says 8"});
}

// What is written reads back as the same model, and a resolved one as well.
TEST(HfExperts, WrittenModelsReadBack) {
  for (const json& config :
       {small("mixtral"), small("mixtral", {{"sliding_window", 9}, {"num_local_experts", 5}, {"head_dim", 6}}),
        small("mixtral", {{"output_router_logits", true}, {"router_aux_loss_coef", 0.3}}), small("qwen3_moe"),
        small("qwen3_moe", {{"mlp_only_layers", {0, 2}}, {"norm_topk_prob", true}, {"attention_bias", true}}),
        small("qwen3_moe", {{"decoder_sparse_step", 2}, {"use_sliding_window", true}, {"sliding_window", 7}}),
        small("qwen3_moe", {{"num_experts", 0}}), small("deepseek_v3"),
        small("deepseek_v3", {{"q_lora_rank", nullptr}, {"n_shared_experts", 0}, {"rope_interleave", false}}),
        small("deepseek_v3",
              {{"first_k_dense_replace", 1}, {"norm_topk_prob", false}, {"routed_scaling_factor", 1.5}})}) {
    Deck a, b;
    a.model = read(config);
    Report report;
    check_model(a.model, 16, report);
    ASSERT_NO_THROW(report.throw_if_any("the deck")) << config.dump(2);
    b.model = read(json::parse(write_hf_config(a.model)));
    check_model(b.model, 16, report);
    b.model.hf = a.model.hf;
    EXPECT_EQ(test::difference(a, b), "") << config.dump(2) << write_hf_config(a.model);
  }
}

TEST(HfExperts, ModelsWithoutWordsAreRefused) {
  const auto obstacle = [](const char* family, auto change) {
    ModelDeck m = read(small(family));
    EXPECT_EQ(hf_obstacle(m), "") << family;
    change(m);
    return hf_obstacle(m);
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(says(obstacle("mixtral", [](ModelDeck& m) { m.shared_expert_ffn = 8; }), "shared_expert_ffn must be 0"));
  EXPECT_TRUE(says(obstacle("mixtral", [](ModelDeck& m) { m.dense_layers = {1}; }), "no layer without experts"));
  EXPECT_TRUE(says(obstacle("mixtral", [](ModelDeck& m) { m.experts = 0; }), "experts must be at least 1"));
  EXPECT_TRUE(says(obstacle("qwen3_moe", [](ModelDeck& m) { m.router_bias = true; }), "router_bias must be false"));
  EXPECT_TRUE(says(obstacle("qwen3_moe", [](ModelDeck& m) { m.mtp_depth = 1; }), "mtp_depth must be 0"));
  EXPECT_TRUE(says(obstacle("deepseek_v3", [](ModelDeck& m) { m.shared_expert_ffn = 9; }), "a multiple of"));
  EXPECT_TRUE(says(obstacle("deepseek_v3", [](ModelDeck& m) { m.sliding_window = 8; }), "sliding_window must be 0"));
  EXPECT_TRUE(says(obstacle("deepseek_v3", [](ModelDeck& m) { m.latent_norm_epsilon = 1e-5; }), "must be 1e-6"));
  EXPECT_TRUE(says(obstacle("deepseek_v3", [](ModelDeck& m) { m.attention = AttentionKind::standard; }), "mla"));
  ModelDeck llama = read(small("mixtral"));
  llama.family = Family::llama;
  EXPECT_TRUE(says(hf_obstacle(llama), "experts must be 0"));
}

}  // namespace
}  // namespace forge

#include <cmath>

#include "config/family.hpp"
#include "config/router_score.hpp"
#include "family_cases.hpp"

// config.json of families whose blocks have scales, norms or activations of their own.

namespace forge {
namespace {

using namespace test;

TEST(HfFamilies, MinimaxM2) {
  const ModelDeck absent = read({{"model_type", "minimax_m2"}});
  EXPECT_EQ(absent.experts, 256);
  EXPECT_EQ(absent.expert_ffn, 1536);
  EXPECT_EQ(absent.rope_fraction, 1);
  EXPECT_EQ(absent.rope_theta, 5e6);
  EXPECT_EQ(absent.router_score, ScoreKind::sigmoid);
  EXPECT_TRUE(absent.router_bias && absent.router_renormalise && absent.qk_norm && absent.qk_norm_whole);
  const auto with_keys = [](const json& changes) { return plain("minimax_m2", with({{"head_dim", 12}}, changes)); };
  EXPECT_EQ(read_twice(with_keys({{"rotary_dim", 6}})).rope_fraction, 0.5);
  EXPECT_EQ(json::parse(write_hf_config(read(with_keys({{"rotary_dim", 6}}))))["rotary_dim"], 6);
  EXPECT_EQ(read(with_keys({{"rotary_dim", 6}, {"partial_rotary_factor", 1}})).rope_fraction, 1);
  expect_refused(with_keys({{"rotary_dim", 14}}), {"rotary_dim = 14; legal: at most head_dim"});
  expect_refused(with_keys({{"scoring_func", "softmax"}}), {"scoring_func = 'softmax'; legal: sigmoid"});
  expect_refused(with_keys({{"qk_norm_type", "per_head"}}), {"qk_norm_type = 'per_head'; legal: per_layer"});
  expect_refused(with_keys({{"use_routing_bias", false}}), {"use_routing_bias = false: not available"});
  expect_refused(with_keys({{"shared_intermediate_size", 8}}), {"shared_intermediate_size = 8: not available"});
  expect_refused(with_keys({{"attn_type_list", {1, 0}}}), {"attn_type_list: legal: a list of 1"});
  ModelDeck other = read(with_keys(json::object()));
  other.router_bias = false;
  expect_bad_input([&] { write_hf_config(other); }, {"family minimax_m2", "router_bias true"});
  other = read(with_keys(json::object()));
  other.router_scale = 2;
  expect_bad_input([&] { write_hf_config(other); }, {"router_scale must be 1"});
}

TEST(HfFamilies, GptOss) {
  const ModelDeck absent = read({{"model_type", "gpt_oss"}});
  EXPECT_EQ(absent.width, 2880);
  EXPECT_EQ(absent.head_dim, 64);
  EXPECT_EQ(absent.experts, 128);
  EXPECT_EQ(absent.experts_per_token, 4);
  EXPECT_EQ(absent.expert_ffn, 2880);
  EXPECT_EQ(absent.activation, Activation::clamped_swiglu);
  EXPECT_EQ(absent.activation_limit, 7);
  EXPECT_EQ(absent.activation_alpha, 1.702);
  EXPECT_TRUE(absent.attention_sinks && absent.expert_bias && absent.router_logit_bias && absent.qkv_bias &&
              absent.attention_out_bias && absent.router_renormalise);
  EXPECT_EQ(absent.sliding_window, 128);
  EXPECT_EQ(absent.sliding_window_full_every, 2);
  EXPECT_EQ(absent.rope_theta, 150000);
  EXPECT_EQ(absent.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(absent.rope_factor, 32);
  EXPECT_EQ(absent.rope_original_positions, 4096);
  EXPECT_FALSE(absent.rope_truncate || absent.tied_embeddings);
  // As openai/gpt-oss-20b has it.
  const json yarn = {{"beta_fast", 32.0},   {"beta_slow", 1.0},
                     {"factor", 32.0},      {"original_max_position_embeddings", 4096},
                     {"rope_type", "yarn"}, {"truncate", false}};
  const json published = {{"model_type", "gpt_oss"},
                          {"num_hidden_layers", 24},
                          {"num_local_experts", 32},
                          {"rope_scaling", yarn},
                          {"rope_theta", 150000},
                          {"swiglu_limit", 7.0},
                          {"attention_bias", true},
                          {"experts_per_token", 4},
                          {"num_experts_per_tok", 4},
                          {"initial_context_length", 4096},
                          {"sliding_window", 128},
                          {"hidden_act", "silu"},
                          {"quantization_config", {{"quant_method", "mxfp4"}}}};
  EXPECT_EQ(read_twice(published).layers, 24);
  const auto small = [](const json& changes) { return plain("gpt_oss", with({{"head_dim", 8}}, changes)); };
  EXPECT_EQ(read(small({{"rope_parameters", nullptr}})).rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(read(small({{"rope_parameters", json::object()}})).rope_scaling, RopeScaling::none);
  EXPECT_EQ(read_twice(small({{"swiglu_limit", 0.5}, {"swiglu_alpha", 1.5}})).activation_alpha, 1.5);
  EXPECT_EQ(read_twice(small({{"rope_scaling", {{"rope_type", "default"}}}})).rope_scaling, RopeScaling::none);
  EXPECT_FALSE(read_twice(small({{"attention_bias", false}})).attention_out_bias);
  EXPECT_EQ(read_twice(small({{"layer_types", std::vector<std::string>(5, "full_attention")}})).sliding_window, 0);
  EXPECT_EQ(json::parse(write_hf_config(read(small(json::object()))))["layer_types"][0], "sliding_attention");
  expect_refused(small({{"quantization_config", {{"quant_method", "fp8"}}}}), {"quant_method = 'fp8'; legal: mxfp4"});
  ModelDeck other = read(small(json::object()));
  other.expert_bias = false;
  expect_bad_input([&] { write_hf_config(other); }, {"family gpt_oss", "expert_bias must be true"});
  other = read(plain("llama"));
  other.attention_sinks = true;
  expect_bad_input([&] { write_hf_config(other); }, {"family llama", "attention_sinks must be false"});
  other = read(plain("mixtral"));
  other.router_logit_bias = true;
  expect_bad_input([&] { write_hf_config(other); }, {"family mixtral", "router_logit_bias must be false"});
}

TEST(HfFamilies, Ministral3) {
  const ModelDeck absent = read({{"model_type", "ministral3"}});
  EXPECT_EQ(absent.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(absent.rope_theta, 1e6);
  EXPECT_EQ(absent.rope_factor, 16);
  EXPECT_EQ(absent.rope_original_positions, 16384);
  EXPECT_EQ(absent.query_position_scale, 0.1);
  EXPECT_EQ(absent.head_dim, 128);
  const auto rope = [](const json& changes) {
    const json yarn = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}};
    return plain("ministral3", {{"rope_parameters", with(yarn, changes)}});
  };
  EXPECT_EQ(read_twice(rope({{"llama_4_scaling_beta", 0.3}, {"mscale", 1}})).query_position_scale, 0.3);
  EXPECT_EQ(read_twice(rope({{"llama_4_scaling_beta", 0}, {"rope_type", "default"}})).query_position_scale, 0);
  expect_refused(rope(json::object()), {"rope_parameters: llama_4_scaling_beta: missing; legal: number, 0 or more"});
  expect_refused(rope({{"llama_4_scaling_beta", 0.1}, {"rope_type", "linear"}}),
                 {"llama_4_scaling_beta = 0.1 needs rope_type: yarn or llama3"});
  ModelDeck other = read(plain("llama"));
  other.query_position_scale = 0.1;
  expect_bad_input([&] { write_hf_config(other); }, {"family llama", "query_position_scale must be 0"});
}

TEST(HfFamilies, Qwen3Next) {
  const ModelDeck absent = read({{"model_type", "qwen3_next"}});
  EXPECT_EQ(std::pair(absent.experts, absent.experts_per_token), std::pair(512L, 10L));
  EXPECT_EQ(std::pair(absent.expert_ffn, absent.shared_expert_ffn), std::pair(512L, 512L));
  EXPECT_EQ(std::pair(absent.linear_key_heads, absent.linear_value_heads), std::pair(16L, 32L));
  EXPECT_EQ(absent.full_attention_interval, 4);
  EXPECT_EQ(absent.rope_fraction, 0.25);
  EXPECT_EQ(absent.head_dim, 256);
  EXPECT_TRUE(absent.router_renormalise && absent.shared_expert_gate && absent.attention_output_gate && absent.qk_norm);
  const auto next = [](const json& changes) {
    const json small = {{"num_experts", 6},
                        {"num_experts_per_tok", 3},
                        {"head_dim", 16},
                        {"linear_num_key_heads", 2},
                        {"linear_num_value_heads", 4}};
    return plain("qwen3_next", with(small, changes));
  };
  const ModelDeck m = read_twice(next({{"full_attention_interval", 2},
                                       {"norm_topk_prob", false},
                                       {"decoder_sparse_step", 2},
                                       {"mlp_only_layers", {3}},
                                       {"partial_rotary_factor", 0.5}}));
  EXPECT_EQ(m.full_attention_interval, 2);
  EXPECT_EQ(m.dense_layers, std::vector<std::int64_t>{3});
  EXPECT_EQ(m.moe_every, 2);
  EXPECT_FALSE(m.router_renormalise);
  EXPECT_EQ(m.rope_fraction, 0.5);
  const json written = json::parse(write_hf_config(m));
  EXPECT_EQ(written["architectures"][0], "Qwen3NextForCausalLM");
  EXPECT_EQ(written["layer_types"],
            json({"linear_attention", "full_attention", "linear_attention", "full_attention", "linear_attention"}));
  EXPECT_EQ(read_twice(next({{"num_experts", 0}})).experts, 0);
  expect_refused(next({{"layer_types", {"linear_attention"}}}), {"layer_types", "legal: 5 entries, linear_attention"});
  ModelDeck other = m;
  other.mtp_depth = 1;
  EXPECT_EQ(json::parse(write_hf_config(other))["num_nextn_predict_layers"], 1);
  other.attention_output_gate = false;
  expect_bad_input([&] { write_hf_config(other); }, {"family qwen3_next", "attention_output_gate must be true"});
  other = m;
  other.shared_expert_gate = false;
  expect_bad_input([&] { write_hf_config(other); }, {"shared_expert_gate must be true"});
}

TEST(HfFamilies, Gemma3) {
  const ModelDeck absent = read({{"model_type", "gemma3_text"}});
  EXPECT_EQ(absent.norm_placement, NormPlacement::both);
  EXPECT_EQ(absent.activation, Activation::geglu);
  EXPECT_EQ(absent.embedding_scale, std::sqrt(2304.0));
  EXPECT_EQ(absent.query_pre_attn_scalar, 256);
  EXPECT_EQ(absent.head_dim, 256);
  EXPECT_EQ(absent.sliding_window_full_every, 6);
  EXPECT_EQ(std::pair(absent.rope_theta, absent.rope_window_theta), std::pair(1e6, 1e4));
  EXPECT_TRUE(absent.tied_embeddings && absent.qk_norm && !absent.qk_norm_whole);
  const auto gemma = [](const json& changes) {
    json config = plain("gemma3_text", changes);
    config.erase("hidden_act");
    return config;
  };
  const ModelDeck m = read_twice(gemma({{"sliding_window_pattern", 3},
                                        {"rope_local_base_freq", 500},
                                        {"rope_theta", 2e6},
                                        {"query_pre_attn_scalar", 168},
                                        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}}));
  EXPECT_EQ(m.sliding_window_full_every, 3);
  EXPECT_EQ(std::pair(m.rope_theta, m.rope_window_theta), std::pair(2e6, 500.0));
  EXPECT_EQ(m.query_pre_attn_scalar, 168);
  EXPECT_EQ(m.rope_factor, 8);
  const json written = json::parse(write_hf_config(m));
  EXPECT_EQ(written["hidden_activation"], "gelu_pytorch_tanh");
  EXPECT_EQ(written["rope_local_base_freq"], 500);
  EXPECT_EQ(written["query_pre_attn_scalar"], 168);
  expect_refused(gemma({{"hidden_activation", "silu"}}), {"hidden_activation = 'silu'; legal: gelu_pytorch_tanh"});
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    expect_refused(gemma({{key, 30}}), {key, " = 30: not available; legal: null"});
  expect_refused(gemma({{"use_bidirectional_attention", true}}), {"use_bidirectional_attention = true"});
  ModelDeck other = m;
  other.embedding_scale = 1;
  expect_bad_input([&] { write_hf_config(other); }, {"family gemma3_text", "embedding_scale must be sqrt(width)"});
  other = m;
  other.norm_placement = NormPlacement::before;
  expect_bad_input([&] { write_hf_config(other); }, {"norm_placement must be both"});
  other = m;
  other.activation = Activation::swiglu;
  expect_bad_input([&] { write_hf_config(other); }, {"activation must be geglu"});
  other = m;
  other.query_pre_attn_scalar = 2.5;
  expect_bad_input([&] { write_hf_config(other); }, {"query_pre_attn_scalar must be a whole number"});
}

}  // namespace
}  // namespace forge

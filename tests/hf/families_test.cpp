#include <cmath>

#include "hf/families.hpp"

#include "config/family.hpp"
#include "config/router_score.hpp"
#include "family_cases.hpp"
#include "model/rotary_table.hpp"

// config.json of families with something particular, of other words for a family, and of text models beside image
// models.

namespace forge {
namespace {

using namespace test;

json deepseek_v2(const json& changes = json::object()) {
  return with(plain("deepseek_v2", {{"q_lora_rank", 20},
                                    {"kv_lora_rank", 12},
                                    {"qk_nope_head_dim", 6},
                                    {"qk_rope_head_dim", 4},
                                    {"v_head_dim", 10},
                                    {"n_routed_experts", 8},
                                    {"moe_intermediate_size", 16},
                                    {"n_shared_experts", 2},
                                    {"num_experts_per_tok", 3}}),
              changes);
}

TEST(HfFamilies, DeepseekV2) {
  const ModelDeck greedy = read_twice(deepseek_v2());
  EXPECT_EQ(greedy.family, Family::deepseek_v2);
  EXPECT_EQ(greedy.attention, AttentionKind::mla);
  EXPECT_TRUE(greedy.rope_interleave);
  EXPECT_EQ(greedy.router_score, ScoreKind::softmax);
  EXPECT_EQ(greedy.router_groups, 1);
  EXPECT_EQ(greedy.shared_expert_ffn, 32);
  EXPECT_EQ(greedy.first_dense_layers, 0);
  EXPECT_EQ(greedy.router_scale, 1);
  EXPECT_FALSE(greedy.router_renormalise || greedy.router_bias);
  const ModelDeck groups = read_twice(deepseek_v2({{"topk_method", "group_limited_greedy"},
                                                   {"n_group", 4},
                                                   {"topk_group", 2},
                                                   {"first_k_dense_replace", 1},
                                                   {"routed_scaling_factor", 16.0}}));
  EXPECT_EQ(groups.router_groups, 4);
  EXPECT_EQ(groups.router_groups_used, 2);
  EXPECT_EQ(groups.router_group_score, GroupScoreKind::max);
  EXPECT_EQ(groups.router_scale, 16);
  EXPECT_EQ(read(deepseek_v2({{"n_group", 8}, {"topk_group", 3}})).router_groups, 1) << "greedy has no groups";
  expect_refused(deepseek_v2({{"topk_method", "noaux_tc"}}), {"topk_method = 'noaux_tc'; legal: greedy"});
  expect_refused(deepseek_v2({{"topk_method", "group_limited_greedy"}}), {"n_group: missing", "topk_group: missing"});
  expect_refused(deepseek_v2({{"num_experts_per_tok", nullptr}}), {"num_experts_per_tok: missing"});
  expect_refused(deepseek_v2({{"norm_topk_prob", true}}), {"norm_topk_prob = true"});
  expect_refused(deepseek_v2({{"scoring_func", "sigmoid"}}), {"scoring_func = 'sigmoid'; legal: softmax"});
}

TEST(HfFamilies, Qwen2WithASharedExpert) {
  const ModelDeck absent = read({{"model_type", "qwen2_moe"}});
  EXPECT_EQ(absent.experts, 60);
  EXPECT_EQ(absent.experts_per_token, 4);
  EXPECT_EQ(absent.expert_ffn, 1408);
  EXPECT_EQ(absent.shared_expert_ffn, 5632);
  EXPECT_TRUE(absent.shared_expert_gate && absent.qkv_bias);
  EXPECT_FALSE(absent.attention_out_bias || absent.qk_norm || absent.router_renormalise);
  const json small =
      plain("qwen2_moe", {{"num_experts", 6}, {"moe_intermediate_size", 24}, {"shared_expert_intermediate_size", 40}});
  EXPECT_EQ(read_twice(small).shared_expert_ffn, 40);
  EXPECT_FALSE(read_twice(with(small, {{"qkv_bias", false}, {"mlp_only_layers", {1}}})).qkv_bias);
  EXPECT_EQ(read_twice(with(small, {{"num_experts", 0}})).shared_expert_ffn, 0);
  expect_refused(with(small, {{"use_sliding_window", true}}), {"use_sliding_window = true", "legal: false"});
  ModelDeck other = read(small);
  other.shared_expert_gate = false;
  expect_bad_input([&] { write_hf_config(other); }, {"family qwen2_moe", "shared_expert_gate must be true"});
}

TEST(HfFamilies, Phi3) {
  const ModelDeck absent = read({{"model_type", "phi3"}});
  EXPECT_EQ(absent.ffn, 8192);
  EXPECT_EQ(absent.kv_heads, 32);
  EXPECT_EQ(absent.norm_epsilon, 1e-5);
  EXPECT_EQ(absent.sliding_window, 0);
  EXPECT_EQ(read_twice(plain("phi3", {{"sliding_window", 7}})).sliding_window, 7);
  EXPECT_FALSE(read_twice(plain("phi3", {{"attention_bias", true}})).qkv_bias) << "the class has no such key";
  EXPECT_EQ(read_twice(plain("phi3", {{"partial_rotary_factor", 0.75}})).rope_fraction, 0.75);
  EXPECT_EQ(absent.rope_fraction, 1);
  expect_refused(plain("phi3", {{"partial_rotary_factor", 1.5}}), {"partial_rotary_factor", "at most 1"});
  expect_refused(plain("phi3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
                 {"rope_scaling: type = 'linear'; legal: default | longrope | su"});
}

TEST(HfFamilies, LongRope) {
  const json scaling = {{"type", "longrope"}, {"short_factor", {1, 1.05, 1.25, 1.5}}, {"long_factor", {1, 2, 8.5, 30}}};
  const auto phi = [&](const json& changes, const json& more = json::object()) {
    return plain("phi3",
                 with({{"rope_scaling", with(scaling, changes)}, {"original_max_position_embeddings", 16}}, more));
  };
  const ModelDeck m = read_twice(phi(json::object()));
  EXPECT_EQ(m.rope_scaling, RopeScaling::longrope);
  EXPECT_EQ(m.rope_original_positions, 16);
  EXPECT_EQ(m.rope_factor, 4);
  EXPECT_EQ(m.rope_short_factor, (std::vector<double>{1, 1.05, 1.25, 1.5}));
  EXPECT_EQ(m.rope_long_factor, (std::vector<double>{1, 2, 8.5, 30}));
  const json written = json::parse(write_hf_config(m));
  EXPECT_EQ(written["rope_scaling"], scaling) << "versions of the class know three keys alone";
  EXPECT_EQ(written["original_max_position_embeddings"], 16);
  const ModelDeck given = read_twice(phi({{"factor", 2}, {"attention_factor", 1.5}}));
  EXPECT_EQ(std::pair(given.rope_factor, given.rope_attention_factor), std::pair(2.0, 1.5));
  const ModelSpec spec = resolve_model(m);
  const RotaryFrequencies near = rotary_frequencies(spec, 0, 16), far = rotary_frequencies(spec, 0, 17);
  EXPECT_DOUBLE_EQ(near.inverse[3], std::pow(1e4, -0.75) / 1.5);
  EXPECT_DOUBLE_EQ(far.inverse[3], std::pow(1e4, -0.75) / 30);
  EXPECT_DOUBLE_EQ(near.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(16.0)));
  EXPECT_EQ(far.attention_factor, near.attention_factor);
  EXPECT_EQ(read(phi({{"type", "su"}})).rope_scaling, RopeScaling::longrope) << "its older name";
  EXPECT_EQ(read(phi(json::object(), {{"original_max_position_embeddings", nullptr}})).rope_original_positions, 4096);
  expect_refused(phi({{"short_factor", {1}}}), {"short_factor = a list; legal: 4 numbers, more than 0"});
  expect_refused(phi({{"long_factor", {1, 2, 0, 3}}}), {"long_factor", "legal: 4 numbers, more than 0"});
  expect_refused(phi({{"long_factor", nullptr}}), {"long_factor: missing; legal: 4 numbers"});
  expect_refused(phi({{"type", "yarn"}}), {"'yarn'; legal: default | longrope | su"});
  ModelDeck other = m;
  other.family = Family::llama;
  expect_bad_input([&] { write_hf_config(other); }, {"family llama", "rope_scaling must not be longrope"});
}

TEST(HfFamilies, Glm4Moe) {
  const ModelDeck absent = read({{"model_type", "glm4_moe"}});
  EXPECT_EQ(absent.rope_fraction, 0.5);
  EXPECT_EQ(absent.experts, 128);
  EXPECT_EQ(absent.first_dense_layers, 1);
  EXPECT_EQ(absent.router_scale, 1);
  EXPECT_EQ(absent.router_groups, 1);
  EXPECT_TRUE(absent.router_bias && absent.router_renormalise && !absent.qk_norm && !absent.qkv_bias);
  const json small = plain("glm4_moe", {{"n_routed_experts", 8},
                                        {"num_experts_per_tok", 2},
                                        {"moe_intermediate_size", 16},
                                        {"n_shared_experts", 2},
                                        {"use_qk_norm", true},
                                        {"attention_bias", true}});
  const ModelDeck m = read_twice(small);
  EXPECT_EQ(m.shared_expert_ffn, 32);
  EXPECT_TRUE(m.qk_norm && m.qkv_bias && !m.attention_out_bias);
  const json inner = {{"rope_type", "default"}, {"partial_rotary_factor", 0.75}};
  EXPECT_EQ(read_twice(with(small, {{"rope_parameters", inner}})).rope_fraction, 0.75);
  ModelDeck other = m;
  other.router_score = ScoreKind::softmax;
  expect_bad_input([&] { write_hf_config(other); }, {"family glm4_moe", "router_score must be sigmoid"});
}

TEST(HfFamilies, SmolLm3) {
  const ModelDeck absent = read({{"model_type", "smollm3"}});
  EXPECT_EQ(absent.no_rope_every, 4);
  EXPECT_EQ(absent.rope_theta, 2e6);
  EXPECT_TRUE(absent.tied_embeddings);
  EXPECT_EQ(read_twice(plain("smollm3")).no_rope_every, 4);
  EXPECT_EQ(read_twice(plain("smollm3", {{"no_rope_layer_interval", 2}})).no_rope_every, 2);
  EXPECT_EQ(read_twice(plain("smollm3", {{"no_rope_layer_interval", 6}})).no_rope_every, 0) << "of five layers";
  EXPECT_EQ(read_twice(plain("smollm3", {{"no_rope_layers", {1, 1, 0, 1, 1}}})).no_rope_every, 3);
  EXPECT_EQ(read_twice(plain("smollm3", {{"no_rope_layers", {1, 1, 1, 1, 1}}})).no_rope_every, 0);
  EXPECT_EQ(read_twice(plain("smollm3", {{"no_rope_layers", {0, 0, 0, 0, 0}}})).no_rope_every, 1);
  for (const json& list : {json{1, 0, 1, 1, 0}, json{1, 0, 1, 0}, json{1, 1, 1, 1, 2}, json(3)})
    expect_refused(plain("smollm3", {{"no_rope_layers", list}}), {"no_rope_layers: legal: 5 entries of 0 and 1"});
  expect_refused(plain("smollm3", {{"use_sliding_window", true}}), {"use_sliding_window = true"});
  ModelDeck llama = read_twice(plain("llama"));
  llama.no_rope_every = 2;
  expect_bad_input([&] { write_hf_config(llama); }, {"family llama", "no_rope_every must be 0"});
  llama.no_rope_every = 0;
  llama.rope_fraction = 0.5;
  expect_bad_input([&] { write_hf_config(llama); }, {"rope_fraction must be 1"});
}

TEST(HfFamilies, Olmoe) {
  const ModelDeck absent = read({{"model_type", "olmoe"}});
  EXPECT_EQ(absent.experts, 64);
  EXPECT_EQ(absent.experts_per_token, 8);
  EXPECT_EQ(absent.expert_ffn, 2048);
  EXPECT_EQ(absent.norm_epsilon, 1e-5);
  EXPECT_TRUE(absent.qk_norm && absent.qk_norm_whole && !absent.router_renormalise);
  const json small = plain("olmoe", {{"num_experts", 6}, {"num_experts_per_tok", 2}, {"norm_topk_prob", true}});
  EXPECT_TRUE(read_twice(small).router_renormalise);
  EXPECT_TRUE(read_twice(with(small, {{"attention_bias", true}, {"clip_qkv", nullptr}})).attention_out_bias);
  expect_refused(with(small, {{"clip_qkv", 8.0}}), {"clip_qkv = 8.0: not available; legal: null"});
  ModelDeck other = read(small);
  other.qk_norm_whole = false;
  expect_bad_input([&] { write_hf_config(other); }, {"family olmoe", "qk_norm_whole must be true"});
  other = read(small);
  other.head_dim = 6;
  expect_bad_input([&] { write_hf_config(other); }, {"head_dim must be width / heads"});
}

TEST(HfFamilies, Olmo2) {
  const ModelDeck absent = read({{"model_type", "olmo2"}});
  EXPECT_EQ(absent.norm_placement, NormPlacement::behind);
  EXPECT_EQ(absent.norm_epsilon, 1e-5);
  EXPECT_EQ(absent.rope_theta, 10000);
  EXPECT_TRUE(absent.qk_norm && absent.qk_norm_whole && !absent.qkv_bias && !absent.tied_embeddings);
  EXPECT_EQ(read_twice(plain("olmo2", {{"sliding_window", 7}})).sliding_window, 0) << "the class has no window";
  EXPECT_TRUE(read_twice(plain("olmo2", {{"attention_bias", true}})).attention_out_bias);
  ModelDeck other = read(plain("olmo2"));
  other.norm_placement = NormPlacement::before;
  expect_bad_input([&] { write_hf_config(other); }, {"family olmo2", "norm_placement must be behind"});
  for (const char* type : {"llama", "qwen3", "olmoe"}) {
    other = read(plain(type));
    other.norm_placement = NormPlacement::behind;
    expect_bad_input([&] { write_hf_config(other); }, {"norm_placement must be before"});
  }
}

json layer_types(std::int64_t layers, std::int64_t full_every) {
  json list = json::array();
  for (std::int64_t number = 1; number <= layers; ++number)
    list.push_back(full_every > 0 && number % full_every == 0 ? "full_attention" : "sliding_attention");
  return list;
}

TEST(HfFamilies, WindowsOfOlmo3) {
  const ModelDeck absent = read({{"model_type", "olmo3"}});
  EXPECT_EQ(absent.sliding_window, 4096);
  EXPECT_EQ(absent.sliding_window_full_every, 4);
  EXPECT_EQ(absent.norm_placement, NormPlacement::behind);
  for (const std::int64_t every : {0, 1, 2, 3, 4, 5}) {
    const ModelDeck m = read_twice(plain("olmo3", {{"sliding_window", 9}, {"layer_types", layer_types(5, every)}}));
    EXPECT_EQ(m.sliding_window, every == 1 ? 0 : 9);
    EXPECT_EQ(m.sliding_window_full_every, every == 1 ? 0 : every);
    EXPECT_EQ(json::parse(write_hf_config(m))["layer_types"], layer_types(5, every));
  }
  EXPECT_EQ(read(plain("olmo3", {{"num_hidden_layers", 3}})).sliding_window_full_every, 0) << "of three layers";
  const json full = "full_attention", windowed = "sliding_attention";
  for (const json& list : {json{full, full, windowed, windowed, windowed}, json{windowed, full, windowed, full},
                           json{windowed, full, windowed, windowed, full}, json{"chunked_attention"}})
    expect_refused(plain("olmo3", {{"layer_types", list}}), {"layer_types: legal: 5 entries"});
  expect_refused(plain("olmo3", {{"sliding_window", nullptr}}), {"sliding_window = null with sliding_attention"});
  ModelDeck other = read(plain("llama"));
  other.sliding_window_full_every = 2;
  expect_bad_input([&] { write_hf_config(other); }, {"sliding_window_full_every must be 0"});
  other.sliding_window_full_every = 0, other.rope_window_theta = 5;
  expect_bad_input([&] { write_hf_config(other); }, {"rope_window_theta must be 0"});
}

// As the class has them: rope_scaling, and a rope_theta outside of rope_parameters, are those of full layers.
TEST(HfFamilies, RotationOfOlmo3ByLayerType) {
  const auto theta = [](const json& changes) {
    const ModelDeck m = read_twice(plain("olmo3", changes));
    return std::pair(m.rope_theta, m.rope_window_theta);
  };
  const json yarn = {{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 64}};
  const json plain_rope = {{"rope_type", "default"}, {"rope_theta", 100}};
  EXPECT_EQ(theta(json::object()), std::pair(5e5, 0.0));
  EXPECT_EQ(theta({{"rope_theta", 5e5}}), std::pair(5e5, 0.0));
  EXPECT_EQ(theta({{"rope_theta", 1e4}}), std::pair(1e4, 5e5));
  EXPECT_EQ(theta({{"rope_theta", 5e5}, {"rope_scaling", yarn}}), std::pair(5e5, 5e5));
  EXPECT_EQ(theta({{"rope_parameters", {{"full_attention", yarn}, {"sliding_attention", plain_rope}}}}),
            std::pair(5e5, 100.0));
  EXPECT_EQ(theta({{"rope_parameters", {{"full_attention", yarn}, {"sliding_attention", yarn}}}}), std::pair(5e5, 0.0));
  const ModelDeck stretched = read_twice(plain("olmo3", {{"rope_scaling", yarn}}));
  EXPECT_EQ(stretched.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(stretched.rope_factor, 8);
  EXPECT_EQ(theta({{"rope_scaling", yarn}, {"layer_types", layer_types(5, 1)}}), std::pair(5e5, 0.0)) << "no window";
  expect_refused(plain("olmo3", {{"rope_scaling", with(yarn, {{"truncate", false}})}}), {"truncate = false, which"});
  ModelDeck other = stretched;
  other.rope_truncate = false;
  expect_bad_input([&] { write_hf_config(other); }, {"rope_truncate must be true"});
  expect_refused(plain("olmo3", {{"rope_parameters", plain_rope}}),
                 {"rope_parameters: legal for this model_type: maps full_attention and sliding_attention"});
  expect_refused(plain("olmo3", {{"rope_parameters", {{"sliding_attention", yarn}}}}),
                 {"sliding_attention: rope_type = 'yarn'; legal: default, or all parameters"});
}

TEST(HfFamilies, OtherWords) {
  for (const char* word : {"kimi_k2", "moonlight"}) {
    const ModelDeck m = read_twice({{"model_type", word}, {"vocab_size", 97}});
    EXPECT_EQ(m.family, Family::deepseek_v3);
    EXPECT_EQ(json::parse(write_hf_config(m))["model_type"], "deepseek_v3") << "which transformers knows";
  }
  EXPECT_EQ(hf_model_type("qwen3_vl_text"), nullptr);
}

// What transformers writes of a text model beside an image model: rotary parameters of three axes, which are one for
// text.
TEST(HfFamilies, TextBesideImages) {
  const json rope = {{"rope_type", "default"}, {"rope_theta", 5e6}, {"mrope_section", {2, 1, 1}}};
  const json text = plain("", {{"rope_parameters", rope}, {"eos_token_id", 5}, {"initializer_range", 0.3}});
  const ModelDeck m = read_twice(beside_image("qwen3_vl", text, {{"tie_word_embeddings", true}}));
  EXPECT_EQ(m.family, Family::qwen3);
  EXPECT_EQ(m.rope_theta, 5e6);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.initial_std, 0.3);
  EXPECT_TRUE(m.tied_embeddings && m.qk_norm);
  EXPECT_EQ(read(beside_image("qwen3_vl", {{"vocab_size", 97}})).rope_theta, 5e5) << "the class's own";
  const ModelDeck experts = read_twice(beside_image("qwen3_vl_moe", with(text, {{"num_experts", 6}})));
  EXPECT_EQ(experts.family, Family::qwen3_moe);
  EXPECT_EQ(experts.experts, 6);
  EXPECT_EQ(experts.expert_ffn, 1408);
  EXPECT_TRUE(experts.router_renormalise) << "whatever norm_topk_prob says";
  const auto mistral3 = [](const json& text) { return json{{"model_type", "mistral3"}, {"text_config", text}}; };
  const ModelDeck gemma = read_twice(beside_image("gemma3", {{"hidden_size", 64}}));
  EXPECT_EQ(gemma.family, Family::gemma3_text);
  EXPECT_EQ(gemma.vocabulary, 262208);
  EXPECT_EQ(read(mistral3({{"model_type", "ministral3"}})).family, Family::ministral3);
  EXPECT_EQ(read(mistral3({{"model_type", "mistral"}})).family, Family::mistral);
  EXPECT_EQ(read(mistral3({{"vocab_size", 97}})).family, Family::mistral) << "the class's own";
  expect_refused(mistral3({{"model_type", "other"}}), {"text_config: model_type = 'other'; legal: llama | "});
  expect_refused({{"model_type", "qwen3_vl"}}, {"text_config: missing; legal: a map"});
  expect_refused({{"model_type", "qwen3_vl"}, {"text_config", 3}}, {"text_config = 3"});
  expect_refused(beside_image("qwen3_vl", with(text, {{"hidden_size", 0}})), {"config.json: text_config: hidden_size"});
}

}  // namespace
}  // namespace forge

#include "hf/config.hpp"

#include <nlohmann/json.hpp>

#include "../config/support.hpp"
#include "config/family.hpp"
#include "model/rotary_table.hpp"

namespace forge {
namespace {

using nlohmann::json;
using test::expect_bad_input;

ModelDeck read(const json& config, const ModelDeck& deck = {}) {
  const test::Directory directory;
  directory.write("config.json", config.dump());
  return read_hf_config(directory.path(), deck);
}

// A small model of each family; changes are merged in, and a null there stays null.
json small(const char* family, const json& changes = json::object()) {
  json config = {{"model_type", family}, {"vocab_size", 97}};
  if (std::string(family) == "gpt2")
    config.update({{"n_embd", 40}, {"n_layer", 2}, {"n_head", 5}, {"n_positions", 48}});
  else
    config.update({{"hidden_size", 32},
                   {"intermediate_size", 56},
                   {"num_hidden_layers", 3},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"max_position_embeddings", 256}});
  config.update(changes);
  return config;
}

void expect_refused(const json& config, std::initializer_list<const char*> parts) {
  expect_bad_input([&] { read(config); }, parts);
}

TEST(HfConfig, LlamaAndItsDefaults) {
  const ModelDeck m = read(small("llama"));
  EXPECT_EQ(m.family, Family::llama);
  EXPECT_EQ(m.width, 32);
  EXPECT_EQ(m.ffn, 56);
  EXPECT_EQ(m.layers, 3);
  EXPECT_EQ(m.heads, 4);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.head_dim, 8);
  EXPECT_EQ(m.vocabulary, 97);
  EXPECT_EQ(m.max_positions, 256);
  EXPECT_EQ(m.norm, NormKind::rmsnorm);
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_EQ(m.activation, Activation::swiglu);
  EXPECT_EQ(m.positions, PositionKind::rope);
  EXPECT_EQ(m.rope_theta, 10000);
  EXPECT_EQ(m.rope_scaling, RopeScaling::none);
  EXPECT_EQ(m.initial_std, 0.02);
  EXPECT_FALSE(m.tied_embeddings || m.qk_norm || m.qkv_bias || m.attention_out_bias || m.mlp_bias);
  EXPECT_EQ(m.sliding_window, 0);
}

TEST(HfConfig, ClassDefaultsStandForAbsentSizes) {
  const ModelDeck llama = read({{"model_type", "llama"}});
  EXPECT_EQ(llama.width, 4096);
  EXPECT_EQ(llama.ffn, 11008);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_EQ(llama.vocabulary, 32000);
  EXPECT_EQ(llama.max_positions, 2048);
  const ModelDeck mistral = read({{"model_type", "mistral"}});
  EXPECT_EQ(mistral.ffn, 14336);
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.max_positions, 131072);
  const ModelDeck qwen = read({{"model_type", "qwen3"}});
  EXPECT_EQ(qwen.ffn, 22016);
  EXPECT_EQ(qwen.vocabulary, 151936);
  EXPECT_EQ(qwen.head_dim, 128);
  const ModelDeck gpt2 = read({{"model_type", "gpt2"}});
  EXPECT_EQ(gpt2.width, 768);
  EXPECT_EQ(gpt2.layers, 12);
  EXPECT_EQ(gpt2.ffn, 3072);
  EXPECT_EQ(gpt2.vocabulary, 50257);
  EXPECT_EQ(gpt2.max_positions, 1024);
}

TEST(HfConfig, KeyValueHeads) {
  json absent = small("llama");
  absent.erase("num_key_value_heads");
  EXPECT_EQ(read(absent).kv_heads, 4);
  EXPECT_EQ(read(small("llama", {{"num_key_value_heads", nullptr}})).kv_heads, 4);
  // Mistral's class has 8 where the key is absent, and as many as heads where it is null.
  EXPECT_EQ(read(small("mistral", {{"num_key_value_heads", nullptr}})).kv_heads, 4);
}

TEST(HfConfig, HeadDim) {
  EXPECT_EQ(read(small("llama", {{"head_dim", 12}})).head_dim, 12);
  EXPECT_EQ(read(small("mistral", {{"head_dim", nullptr}})).head_dim, 8);
  EXPECT_EQ(read(small("qwen3", {{"head_dim", 14}})).head_dim, 14);
  EXPECT_EQ(read(small("qwen3")).head_dim, 128);
}

TEST(HfConfig, Biases) {
  const ModelDeck llama = read(small("llama", {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias && llama.attention_out_bias && llama.mlp_bias);
  const ModelDeck qwen2 = read(small("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.attention_out_bias || qwen2.mlp_bias || qwen2.qk_norm);
  const ModelDeck qwen3 = read(small("qwen3", {{"attention_bias", true}}));
  EXPECT_TRUE(qwen3.qk_norm && qwen3.qkv_bias && qwen3.attention_out_bias);
  EXPECT_FALSE(read(small("qwen3")).qkv_bias);
  EXPECT_FALSE(read(small("mistral", {{"attention_bias", true}})).qkv_bias) << "mistral's code has no such key";
}

TEST(HfConfig, Gpt2) {
  const ModelDeck m = read(small("gpt2", {{"n_inner", nullptr}, {"attn_pdrop", 0.1}}));
  EXPECT_EQ(m.family, Family::gpt2);
  EXPECT_EQ(m.ffn, 160);
  EXPECT_EQ(m.kv_heads, 5);
  EXPECT_EQ(m.head_dim, 8);
  EXPECT_EQ(m.norm, NormKind::layernorm);
  EXPECT_EQ(m.norm_epsilon, 1e-5);
  EXPECT_EQ(m.positions, PositionKind::learned);
  EXPECT_EQ(m.max_positions, 48);
  EXPECT_EQ(m.activation, Activation::gelu_tanh);
  EXPECT_TRUE(m.tied_embeddings && m.qkv_bias && m.attention_out_bias && m.mlp_bias);
  EXPECT_EQ(m.dropout, 0) << "dropout is the deck's own key";
  EXPECT_EQ(read(small("gpt2", {{"n_inner", 72}})).ffn, 72);
  EXPECT_EQ(read(small("gpt2", {{"activation_function", "gelu"}})).activation, Activation::gelu);
  EXPECT_EQ(read(small("gpt2", {{"activation_function", "gelu_pytorch_tanh"}})).activation, Activation::gelu_tanh);
  EXPECT_EQ(read(small("gpt2", {{"activation_function", "relu2"}})).activation, Activation::relu2);
  EXPECT_FALSE(read(small("gpt2", {{"tie_word_embeddings", false}})).tied_embeddings);
  EXPECT_EQ(read({{"model_type", "gpt2"}, {"hidden_size", 24}, {"num_hidden_layers", 1}}).width, 24);
}

TEST(HfConfig, Gpt2RefusesWhatItCannotDo) {
  expect_refused(small("gpt2", {{"activation_function", "relu"}}), {"activation_function", "'relu'", "gelu_new"});
  expect_refused(small("gpt2", {{"scale_attn_weights", false}}), {"scale_attn_weights", "legal: true"});
  expect_refused(small("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}), {"scale_attn_by_inverse_layer_idx"});
  expect_refused(small("gpt2", {{"add_cross_attention", true}}), {"add_cross_attention"});
  expect_refused(small("gpt2", {{"n_head", 7}}), {"n_embd = 40", "n_head = 7"});
  expect_refused(small("gpt2", {{"hidden_size", 48}}), {"n_embd", "hidden_size = 48"});
}

TEST(HfConfig, RopeInOldAndNewStyle) {
  const json scaling = {
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 2.0}, {"original_max_position_embeddings", 64}};
  json older = scaling, newer = scaling;
  older["type"] = "llama3";
  newer["rope_type"] = "llama3";
  newer["rope_theta"] = 5e5;
  for (const json& config :
       {small("llama", {{"rope_theta", 5e5}, {"rope_scaling", older}}), small("llama", {{"rope_parameters", newer}}),
        small("llama", {{"rope_theta", 1e4}, {"rope_scaling", nullptr}, {"rope_parameters", newer}}),
        small("llama", {{"rope_scaling", json::object()}, {"rope_parameters", newer}})}) {
    const ModelDeck m = read(config);
    EXPECT_EQ(m.rope_scaling, RopeScaling::llama3);
    EXPECT_EQ(m.rope_theta, 5e5);
    EXPECT_EQ(m.rope_factor, 8);
    EXPECT_EQ(m.rope_low_frequency_factor, 1);
    EXPECT_EQ(m.rope_high_frequency_factor, 2);
    EXPECT_EQ(m.rope_original_positions, 64);
  }
}

TEST(HfConfig, RopeDefaults) {
  for (const json& rope : {json{{"rope_type", "default"}}, json{{"type", "default"}}, json{{"rope_theta", 10000}}}) {
    const ModelDeck m = read(small("qwen3", {{"rope_parameters", rope}}));
    EXPECT_EQ(m.rope_scaling, RopeScaling::none);
    EXPECT_EQ(m.rope_theta, 10000);
  }
  EXPECT_EQ(read(small("llama", {{"rope_theta", 3e6}, {"rope_parameters", {{"rope_type", "default"}}}})).rope_theta,
            3e6);
  const ModelDeck linear = read(small("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}));
  EXPECT_EQ(linear.rope_scaling, RopeScaling::linear);
  EXPECT_EQ(linear.rope_factor, 4);
}

// A rope_theta that transformers has moved into rope_parameters may stand outside as it was.
TEST(HfConfig, InnerThetaCounts) {
  ModelDeck m = read(small("llama", {{"head_dim", 128},
                                     {"rope_theta", 10000},
                                     {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000}}}}));
  EXPECT_EQ(m.rope_theta, 500000);
  EXPECT_NEAR(rotary_frequencies(resolve_model(m)).inverse.back(), 2.455e-06, 1e-9);
}

TEST(HfConfig, YarnAttentionFactor) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 16}, {"original_max_position_embeddings", 16}};
  json one = yarn;
  one["attention_factor"] = 1.0;
  EXPECT_NEAR(rotary_frequencies(resolve_model(read(small("llama", {{"rope_parameters", yarn}})))).attention_factor,
              1.2772588722, 1e-9);
  EXPECT_EQ(rotary_frequencies(resolve_model(read(small("llama", {{"rope_parameters", one}})))).attention_factor, 1);
}

TEST(HfConfig, Yarn) {
  const ModelDeck plain = read(small("qwen2", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}}));
  EXPECT_EQ(plain.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(plain.rope_original_positions, 256) << "max_position_embeddings stands in";
  EXPECT_EQ(plain.rope_beta_fast, 32);
  EXPECT_EQ(plain.rope_beta_slow, 1);
  EXPECT_EQ(plain.rope_attention_factor, 0);
  EXPECT_TRUE(plain.rope_truncate);
  const ModelDeck full = read(small("llama", {{"rope_parameters",
                                               {{"rope_type", "yarn"},
                                                {"factor", nullptr},
                                                {"original_max_position_embeddings", 64},
                                                {"beta_fast", 8},
                                                {"beta_slow", 0},
                                                {"attention_factor", 1.5},
                                                {"mscale", 0.7},
                                                {"mscale_all_dim", 0.5},
                                                {"truncate", false}}}}));
  EXPECT_EQ(full.rope_factor, 4) << "max_position_embeddings / original_max_position_embeddings";
  EXPECT_EQ(full.rope_beta_fast, 8);
  EXPECT_EQ(full.rope_beta_slow, 1) << "0 means the default";
  EXPECT_EQ(full.rope_attention_factor, 1.5);
  EXPECT_EQ(full.rope_mscale, 0.7);
  EXPECT_EQ(full.rope_mscale_all_dim, 0.5);
  EXPECT_FALSE(full.rope_truncate);
}

TEST(HfConfig, RopeRefusesWhatItCannotDo) {
  const auto rope = [](const json& parameters) { return small("llama", {{"rope_scaling", parameters}}); };
  expect_refused(rope({{"type", "dynamic"}, {"factor", 2}}),
                 {"rope_scaling: type", "'dynamic'", "default | linear | llama3 | yarn"});
  expect_refused(rope({{"rope_type", "longrope"}}), {"rope_type", "'longrope'"});
  expect_refused(rope({{"rope_type", "yarn"}, {"type", "linear"}, {"factor", 2}}),
                 {"rope_type = 'yarn'", "type = 'linear'"});
  expect_refused(rope({{"type", "linear"}}), {"rope_scaling: factor: missing"});
  expect_refused(rope({{"type", "linear"}, {"factor", 0}}), {"factor = 0", "number > 0"});
  expect_refused(rope({{"rope_type", "llama3"}, {"factor", 8}}),
                 {"low_freq_factor: missing", "high_freq_factor: missing"});
  expect_refused(rope("linear"), {"rope_scaling", "a map or null"});
  expect_refused(small("llama", {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor", "legal: 1"});
  expect_refused(small("qwen3", {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
                 {"rope_parameters", "per layer type"});
  EXPECT_NO_THROW(read(small("llama", {{"partial_rotary_factor", 1.0}})));
}

TEST(HfConfig, MistralWindow) {
  EXPECT_EQ(read(small("mistral")).sliding_window, 4096) << "absent: the class's default";
  EXPECT_EQ(read(small("mistral", {{"sliding_window", nullptr}})).sliding_window, 0) << "null: none";
  EXPECT_EQ(read(small("mistral", {{"sliding_window", 9}})).sliding_window, 9);
  EXPECT_EQ(read(small("mistral", {{"sliding_window", 9}})).sliding_window_layer, 0);
  EXPECT_EQ(read(small("llama", {{"sliding_window", 9}})).sliding_window, 0) << "llama's code has no window";
  expect_refused(small("mistral", {{"sliding_window", 0}}), {"sliding_window", "integer, 1 to"});
  expect_refused(small("mistral", {{"layer_types", {"full_attention", "full_attention", "full_attention"}}}),
                 {"layer_types", "sliding_attention in every layer"});
}

TEST(HfConfig, QwenWindow) {
  for (const char* family : {"qwen2", "qwen3"}) {
    EXPECT_EQ(read(small(family, {{"sliding_window", 7}})).sliding_window, 0) << "off by default";
    const ModelDeck late =
        read(small(family, {{"use_sliding_window", true}, {"sliding_window", 7}, {"max_window_layers", 1}}));
    EXPECT_EQ(late.sliding_window, 7);
    EXPECT_EQ(late.sliding_window_layer, 1);
    EXPECT_EQ(read(small(family, {{"use_sliding_window", true}})).sliding_window, 0) << "28 full layers by default";
    EXPECT_EQ(read(small(family, {{"use_sliding_window", true}, {"sliding_window", nullptr}, {"max_window_layers", 0}}))
                  .sliding_window,
              0);
  }
}

TEST(HfConfig, LayerTypes) {
  const auto types = [](std::initializer_list<const char*> list, bool used = true) {
    return small(
        "qwen3",
        {{"use_sliding_window", used}, {"sliding_window", 5}, {"max_window_layers", 0}, {"layer_types", list}});
  };
  const char *full = "full_attention", *window = "sliding_attention";
  EXPECT_EQ(read(types({full, full, window})).sliding_window_layer, 2);
  EXPECT_EQ(read(types({full, full, full})).sliding_window, 0);
  EXPECT_EQ(read(types({window, window, window})).sliding_window_layer, 0);
  EXPECT_EQ(read(types({window, window, window})).sliding_window, 5);
  expect_refused(types({window, full, window}), {"layer_types", "first every full_attention"});
  expect_refused(types({full, full}), {"layer_types", "3 entries"});
  expect_refused(types({full, full, "linear_attention"}), {"layer_types"});
  expect_refused(types({full, full, window}, false), {"layer_types", "use_sliding_window"});
  expect_refused(small("qwen3", {{"layer_types", {1, 2, 3}}}), {"layer_types", "a list of texts"});
}

TEST(HfConfig, FamiliesAndKeysThatAreRefused) {
  expect_refused({{"model_type", "bert"}},
                 {"'bert'", "llama | mistral | qwen2 | qwen3 | gpt2 | mixtral | qwen3_moe | deepseek_v3"});
  expect_refused(json::object(), {"model_type: missing"});
  expect_refused(small("llama", {{"hidden_act", "gelu"}}), {"hidden_act", "'gelu'", "legal: silu"});
  expect_refused(small("llama", {{"quantization_config", {{"bits", 4}}}}),
                 {"quantization_config: quant_method: missing; legal: fp8", "weight_block_size"});
  const json fp8{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"modules_to_not_convert", {"lm_head"}}};
  EXPECT_NO_THROW(read(small("llama", {{"quantization_config", fp8}})));
  expect_refused({{"model_type", "gpt2"}, {"quantization_config", fp8}}, {"quantization_config", "(in, out)"});
  EXPECT_NO_THROW(
      read(small("llama", {{"quantization_config", nullptr}, {"torch_dtype", "bfloat16"}, {"anything", {1}}})));
}

TEST(HfConfig, WrongTypesAreNamedTogether) {
  expect_refused(small("llama", {{"hidden_size", "32"},
                                 {"rms_norm_eps", 0},
                                 {"tie_word_embeddings", 1},
                                 {"vocab_size", -3},
                                 {"num_hidden_layers", 2.5},
                                 {"model_type", "llama"}}),
                 {"has 5 errors", "hidden_size = '32'", "rms_norm_eps = 0", "tie_word_embeddings = 1",
                  "vocab_size = -3", "num_hidden_layers = 2.5", "config.json"});
  expect_refused(small("llama", {{"vocab_size", 18446744073709551615u}}), {"vocab_size"});
}

TEST(HfConfig, FilesThatAreNoConfig) {
  const auto text = [](const std::string& content) {
    const test::Directory directory;
    directory.write("config.json", content);
    return test::message_of([&] { read_hf_config(directory.path(), {}); });
  };
  EXPECT_NE(text("").find("is empty; legal: JSON"), std::string::npos);
  EXPECT_NE(text("{\"a\": NaN}").find("model_type: missing"), std::string::npos);  // as Python reads it
  EXPECT_NE(text("{\"a\": 1e999}").find("not JSON"), std::string::npos);
  EXPECT_NE(text("[1]").find("must be a JSON map"), std::string::npos);
  EXPECT_NE(text(R"({"model_type": "llama", "model_type": "gpt2"})").find("'model_type' appears a second time"),
            std::string::npos);
  EXPECT_NE(text(R"({"a": {"b": 1, "b": 2}})").find("'b' appears a second time"), std::string::npos);
  EXPECT_NE(text(std::string(100000, '[')).find("nested deeper than 32"), std::string::npos);
  EXPECT_NE(text("{\"a\":" + std::string(100000, '[')).find("nested deeper than 32"), std::string::npos);
  EXPECT_NE(text(std::string((16u << 20) + 1, ' ')).find("legal: at most 16777216"), std::string::npos);
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 1'000'001; ++i) many += ",0";
  EXPECT_NE(text(many + "]}").find("more than 1000000 values"), std::string::npos);
  expect_bad_input([] { read_hf_config("/nonexistent", {}); }, {"model.hf = /nonexistent: No such file"});
}

TEST(HfConfig, DeckKeysMayRepeatButNotContradict) {
  ModelDeck deck;
  deck.layers = 3;
  deck.kv_heads = 0;
  deck.dropout = 0.1;
  deck.initial_std = 0.5;
  deck.load_weights = true;
  deck.residual_scaling = false;
  deck.given = {"layers", "kv_heads", "dropout", "initial_std", "load_weights", "residual_scaling"};
  const ModelDeck model = read(small("llama", {{"initializer_range", 0.3}}), deck);
  EXPECT_EQ(model.dropout, 0.1);
  EXPECT_EQ(model.initial_std, 0.5);
  EXPECT_TRUE(model.load_weights);
  EXPECT_FALSE(model.residual_scaling);
  deck.given = {"layers"};
  EXPECT_EQ(read(small("llama", {{"initializer_range", 0.3}}), deck).initial_std, 0.3);
  deck.layers = 4;
  deck.given = {"layers", "tied_embeddings"};
  deck.tied_embeddings = true;
  expect_bad_input(
      [&] { read(small("llama"), deck); },
      {"model.layers = 4", "config.json says 3", "legal: leave it out", "model.tied_embeddings = true", "says false"});
}

// What is written reads back as the same model.
TEST(HfConfig, WrittenModelsReadBack) {
  const json yarn = {
      {"type", "yarn"}, {"factor", 4.5}, {"original_max_position_embeddings", 64}, {"beta_fast", 8}, {"mscale", 0.7}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 64}};
  for (const json& config :
       {small("llama"), small("llama", {{"attention_bias", true}, {"mlp_bias", true}, {"rope_scaling", llama3}}),
        small("llama",
              {{"head_dim", 6}, {"tie_word_embeddings", true}, {"rope_theta", 12345.5}, {"rope_scaling", yarn}}),
        small("mistral"), small("mistral", {{"sliding_window", nullptr}}), small("qwen2"),
        small("qwen2", {{"use_sliding_window", true}, {"sliding_window", 7}, {"max_window_layers", 1}}),
        small("qwen3", {{"head_dim", 14}, {"rms_norm_eps", 1e-5}}), small("gpt2"),
        small("gpt2", {{"activation_function", "relu2"}, {"n_inner", 72}, {"tie_word_embeddings", false}})}) {
    const ModelDeck model = read(config);
    Deck a, b;
    a.model = model;
    b.model = read(json::parse(write_hf_config(model)));
    b.model.hf = a.model.hf;
    EXPECT_EQ(test::difference(a, b), "") << config.dump(2) << write_hf_config(model);
  }
}

TEST(HfConfig, ModelsWithoutWordsAreRefused) {
  ModelDeck model = read(small("llama"));
  EXPECT_EQ(hf_obstacle(model), "");
  model.qkv_bias = true;
  expect_bad_input([&] { write_hf_config(model); }, {"family llama", "qkv_bias and attention_out_bias"});
  model = read(small("gpt2"));
  model.positions = PositionKind::rope;
  expect_bad_input([&] { write_hf_config(model); }, {"family gpt2", "positions must be learned"});
  model = read(small("mistral"));
  model.sliding_window_layer = 1;
  EXPECT_NE(hf_obstacle(model), "");
}

}  // namespace
}  // namespace forge

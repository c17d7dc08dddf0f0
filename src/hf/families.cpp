#include "hf/families.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "config/family.hpp"
#include "core/error.hpp"
#include "hf/expert_words.hpp"

namespace forge {

namespace {

constexpr HfFamily llama{.architecture = "LlamaForCausalLM",
                         .sizes = {4096, 11008, 32, 32, 32000, 0, 2048},
                         .biases = {.qkv = "attention_bias", .out = "attention_bias", .mlp = "mlp_bias"},
                         .whole_heads = true};
constexpr HfFamily mistral{.architecture = "MistralForCausalLM",
                           .sizes = {4096, 14336, 32, 32, 32000, 8, 131072},
                           .window = HfWindow::every_layer};
constexpr HfFamily qwen2{.architecture = "Qwen2ForCausalLM",
                         .sizes = {4096, 22016, 32, 32, 151936, 32, 32768},
                         .biases = {.always = true},
                         .window = HfWindow::from_layer};
constexpr HfFamily qwen3{.architecture = "Qwen3ForCausalLM",
                         .sizes = {4096, 22016, 32, 32, 151936, 32, 32768, 128},
                         .biases = attention_bias,
                         .window = HfWindow::from_layer,
                         .qk_norm = true};
constexpr HfFamily mixtral{.architecture = "MixtralForCausalLM",
                           .sizes = {4096, 14336, 32, 32, 32000, 8, 131072},
                           .epsilon = 1e-5,
                           .rope_theta = 1e6,
                           .window = HfWindow::every_layer_if_given,
                           .experts = {8, 2, 0},
                           .read_experts = read_mixtral,
                           .write_experts = write_mixtral,
                           .obstacle = mixtral_obstacle};
constexpr HfFamily qwen3_moe{.architecture = "Qwen3MoeForCausalLM",
                             .sizes = {2048, 6144, 24, 32, 151936, 4, 32768},
                             .biases = attention_bias,
                             .window = HfWindow::every_layer_if_used,
                             .qk_norm = true,
                             .experts = {128, 8, 768},
                             .read_experts = read_qwen3_moe,
                             .write_experts = write_qwen3_moe,
                             .obstacle = plain_router_obstacle};
constexpr HfFamily deepseek_v3{.architecture = "DeepseekV3ForCausalLM",
                               .sizes = {7168, 18432, 61, 128, 129280, 0, 4096},
                               .latent = true,
                               .multi_token = "num_nextn_predict_layers",
                               .router_biases = true,
                               .exact_router = true,
                               .experts = {256, 8, 2048, 1, 3, 8, 4, 2.5},
                               .read_experts = read_deepseek_v3,
                               .write_experts = write_deepseek_v3,
                               .obstacle = deepseek_v3_obstacle};
constexpr HfFamily deepseek_v2{.architecture = "DeepseekV2ForCausalLM",
                               .sizes = {4096, 11008, 32, 32, 102400, 0, 2048},
                               .latent = true,
                               .whole_heads = true,
                               .exact_router = true,
                               .experts = {64, 6, 1407, 2},
                               .read_experts = read_deepseek_v2,
                               .write_experts = write_deepseek_v2,
                               .obstacle = deepseek_v2_obstacle};
constexpr HfFamily qwen2_moe{.architecture = "Qwen2MoeForCausalLM",
                             .sizes = {2048, 5632, 24, 16, 151936, 16, 32768},
                             .biases = {.qkv = "qkv_bias", .always = true},
                             .window = HfWindow::refused,
                             .experts = {60, 4, 1408, 5632},
                             .read_experts = read_qwen2_moe,
                             .write_experts = write_qwen2_moe,
                             .obstacle = qwen2_moe_obstacle};
constexpr HfFamily phi3{.architecture = "Phi3ForCausalLM",
                        .sizes = {3072, 8192, 32, 32, 32064, 0, 4096},
                        .epsilon = 1e-5,
                        .window = HfWindow::every_layer_if_given,
                        .rope_fraction = 1,
                        .longrope = true};
constexpr HfFamily glm4_moe{.architecture = "Glm4MoeForCausalLM",
                            .sizes = {4096, 10944, 46, 96, 151552, 8, 131072},
                            .epsilon = 1e-5,
                            .biases = {.qkv = "attention_bias"},
                            .qk_norm_key = "use_qk_norm",
                            .rope_fraction = 0.5,
                            .multi_token = "num_nextn_predict_layers",
                            .router_biases = true,
                            .exact_router = true,
                            .experts = {128, 8, 1408, 1, 1},
                            .read_experts = read_sigmoid_experts,
                            .write_experts = write_sigmoid_experts,
                            .obstacle = sigmoid_experts_obstacle};
constexpr HfFamily smollm3{.architecture = "SmolLM3ForCausalLM",
                           .sizes = {2048, 11008, 36, 16, 128256, 4, 32768},
                           .rope_theta = 2e6,
                           .biases = {.qkv = "attention_bias", .out = "attention_bias", .mlp = "mlp_bias"},
                           .window = HfWindow::refused,
                           .tied = true,
                           .no_rope_every = 4};
constexpr HfFamily olmoe{.architecture = "OlmoeForCausalLM",
                         .sizes = {2048, 2048, 16, 16, 50304, 0, 4096},
                         .epsilon = 1e-5,
                         .biases = attention_bias,
                         .qk_norm = true,
                         .qk_norm_whole = true,
                         .refused = {"clip_qkv", ""},
                         .whole_heads = true,
                         .experts = {64, 8, 0},
                         .read_experts = read_olmoe,
                         .write_experts = write_olmoe,
                         .obstacle = olmoe_obstacle};
constexpr HfFamily olmo2{.architecture = "Olmo2ForCausalLM",
                         .sizes = {4096, 11008, 32, 32, 50304, 0, 2048},
                         .epsilon = 1e-5,
                         .biases = attention_bias,
                         .qk_norm = true,
                         .qk_norm_whole = true,
                         .norms = NormPlacement::behind};
constexpr HfFamily olmo3{.architecture = "Olmo3ForCausalLM",
                         .sizes = {4096, 11008, 32, 32, 50304, 0, 2048},
                         .epsilon = 1e-5,
                         .rope_theta = 5e5,
                         .biases = attention_bias,
                         .window = HfWindow::by_type,
                         .qk_norm = true,
                         .qk_norm_whole = true,
                         .norms = NormPlacement::behind};
constexpr HfFamily minimax_m2{.architecture = "MiniMaxM2ForCausalLM",
                              .sizes = {3072, 1536, 62, 48, 200064, 8, 196608, 128},
                              .rope_theta = 5e6,
                              .qk_norm = true,
                              .qk_norm_whole = true,
                              .rope_fraction = 1,
                              .rotary_dim = true,
                              .router_biases = true,
                              .experts = {256, 8, 0},
                              .read_experts = read_minimax_m2,
                              .write_experts = write_minimax_m2,
                              .obstacle = minimax_m2_obstacle};
constexpr HfFamily ministral3{.architecture = "Ministral3ForCausalLM",
                              .sizes = {4096, 14336, 34, 32, 131072, 8, 262144, 128},
                              .epsilon = 1e-5,
                              .window = HfWindow::every_layer_if_given,
                              .query_position_scale = true};
constexpr HfFamily gemma3{.architecture = "Gemma3ForCausalLM",
                          .sizes = {2304, 9216, 26, 8, 262208, 4, 131072, 256},
                          .rope_theta = 1e6,
                          .biases = attention_bias,
                          .window = HfWindow::by_type,
                          .qk_norm = true,
                          .norms = NormPlacement::both,
                          .activation = Activation::geglu,
                          .activation_key = "hidden_activation",
                          .refused = {"attn_logit_softcapping", "final_logit_softcapping"},
                          .tied = true,
                          .full_every = 6,
                          .full_every_key = "sliding_window_pattern",
                          .window_theta_key = "rope_local_base_freq",
                          .window_theta = 10000,
                          .scaled_embeddings = true,
                          .query_pre_attn_scalar = 256,
                          .whole_heads = true};
constexpr HfFamily gpt_oss{
    .architecture = "GptOssForCausalLM",
    .sizes = {2880, 2880, 36, 64, 201088, 8, 131072, 64},
    .epsilon = 1e-5,
    .rope_theta = 150000,
    .biases = {.qkv = "attention_bias", .always = true, .out = "attention_bias", .out_always = true},
    .window = HfWindow::by_type,
    .activation = Activation::clamped_swiglu,
    .full_every = 2,
    .sliding_window = 128,
    .one_rope = true,
    .sinks = true,
    .expert_biases = true,
    .experts = {128, 4, 0},
    .read_experts = read_gpt_oss,
    .write_experts = write_gpt_oss,
    .obstacle = mixtral_obstacle};

constexpr HfFamily qwen3_5{.architecture = "Qwen3_5ForCausalLM",
                           .sizes = {4096, 12288, 32, 16, 248320, 4, 32768, 256},
                           .biases = attention_bias,
                           .qk_norm = true,
                           .rope_fraction = 0.25,
                           .multi_token = "mtp_num_hidden_layers",
                           .linear = true};
constexpr HfFamily qwen3_5_moe{.architecture = "Qwen3_5MoeForCausalLM",
                               .sizes = {2048, 512, 40, 16, 248320, 2, 32768, 256},
                               .biases = attention_bias,
                               .qk_norm = true,
                               .rope_fraction = 0.25,
                               .multi_token = "mtp_num_hidden_layers",
                               .linear = true,
                               .experts = {256, 8, 512, 512},
                               .read_experts = read_qwen3_5_moe,
                               .write_experts = write_qwen3_5_moe,
                               .obstacle = qwen3_5_moe_obstacle};
constexpr HfFamily qwen3_next{
    .architecture = "Qwen3NextForCausalLM",
    .sizes = {2048, 5632, 48, 16, 151936, 2, 32768, 256},
    .biases = attention_bias,
    .qk_norm = true,
    .rope_fraction = 0.25,
    .multi_token = "num_nextn_predict_layers",
    .linear = true,
    .experts = {.count = 512, .per_token = 10, .ffn = 512, .shared = 512, .renormalise = true},
    .read_experts = read_qwen2_moe,
    .write_experts = write_qwen2_moe,
    .obstacle = qwen2_moe_obstacle};

// Text models of others, which are one of these families where nothing but text comes in.
constexpr HfFamily qwen3_vl{.architecture = qwen3.architecture,
                            .sizes = {4096, 22016, 32, 32, 151936, 32, 128000, 128},
                            .rope_theta = 5e5,
                            .biases = attention_bias,
                            .qk_norm = true};
constexpr HfFamily qwen3_vl_moe{.architecture = qwen3_moe.architecture,
                                .sizes = {2048, 5632, 24, 16, 151936, 16, 128000},
                                .rope_theta = 5e5,
                                .biases = attention_bias,
                                .qk_norm = true,
                                .experts = {60, 4, 1408},
                                .read_experts = read_qwen3_vl_moe};

constexpr HfModelType model_types[] = {
    // In the order of the enumerators.
    {"llama", Family::llama, &llama},
    {"mistral", Family::mistral, &mistral},
    {"qwen2", Family::qwen2, &qwen2},
    {"qwen3", Family::qwen3, &qwen3},
    {"gpt2", Family::gpt2, nullptr},
    {"mixtral", Family::mixtral, &mixtral},
    {"qwen3_moe", Family::qwen3_moe, &qwen3_moe},
    {"deepseek_v3", Family::deepseek_v3, &deepseek_v3},
    {"deepseek_v2", Family::deepseek_v2, &deepseek_v2},
    {"qwen2_moe", Family::qwen2_moe, &qwen2_moe},
    {"phi3", Family::phi3, &phi3},
    {"glm4_moe", Family::glm4_moe, &glm4_moe},
    {"smollm3", Family::smollm3, &smollm3},
    {"olmoe", Family::olmoe, &olmoe},
    {"olmo2", Family::olmo2, &olmo2},
    {"olmo3", Family::olmo3, &olmo3},
    {"minimax_m2", Family::minimax_m2, &minimax_m2},
    {"ministral3", Family::ministral3, &ministral3},
    {"gemma3_text", Family::gemma3_text, &gemma3},
    {"gpt_oss", Family::gpt_oss, &gpt_oss},
    {"qwen3_5_text", Family::qwen3_5_text, &qwen3_5},
    {"qwen3_5_moe_text", Family::qwen3_5_moe_text, &qwen3_5_moe},
    {"qwen3_next", Family::qwen3_next, &qwen3_next},
    // Other words for them.
    {"kimi_k2", Family::deepseek_v3, &deepseek_v3},
    {"moonlight", Family::deepseek_v3, &deepseek_v3},
    {"qwen3_vl", Family::qwen3, &qwen3_vl, true},
    {"qwen3_vl_moe", Family::qwen3_moe, &qwen3_vl_moe, true},
    {"gemma3", Family::gemma3_text, &gemma3, true},
    {"mistral3", Family::mistral, nullptr, true},
    {"qwen3_5", Family::qwen3_5_text, &qwen3_5, true},
    {"qwen3_5_moe", Family::qwen3_5_moe_text, &qwen3_5_moe, true},
};
static_assert(std::equal(family_words.begin(), family_words.end(), model_types,
                         [](std::string_view word, const HfModelType& type) { return word == type.word; }));

}  // namespace

const HfModelType* hf_model_type(const std::string& word) {
  const auto found = std::find_if(std::begin(model_types), std::end(model_types),
                                  [&](const HfModelType& type) { return type.word == word; });
  return found == std::end(model_types) ? nullptr : found;
}

std::string hf_model_types() {
  std::string list;
  for (const HfModelType& type : model_types) list += (list.empty() ? "" : " | ") + std::string(type.word);
  return list;
}

const HfFamily& hf_family(Family family) {
  const HfFamily* const row = model_types[to_size(family)].row;
  require(row != nullptr, "a family is not in the table of families");
  return *row;
}

}  // namespace forge

#pragma once

#include "config/family.hpp"
#include "model/spec.hpp"

namespace forge::test {

// A published mixture of experts.
struct Published {
  const char* name;
  ModelDeck model;
  double billions;  // parameters, as published or as the projects' own files count them
  double digits;    // of this figure: half a unit of its last one, in billions
};

struct Sizes {
  std::int64_t layers, width, ffn, expert_ffn, heads, kv_heads, experts, experts_per_token, shared, vocabulary, dense;
};

inline ModelDeck moe_deck(const Sizes& s, std::int64_t head_dim) {
  ModelDeck m;
  m.layers = s.layers, m.width = s.width, m.ffn = s.ffn, m.expert_ffn = s.expert_ffn;
  m.heads = s.heads, m.kv_heads = s.kv_heads, m.head_dim = head_dim, m.vocabulary = s.vocabulary;
  m.experts = s.experts, m.experts_per_token = s.experts_per_token;
  m.shared_expert_ffn = s.shared * s.expert_ffn, m.first_dense_layers = s.dense;
  return m;
}

inline ModelDeck mla_deck(const Sizes& s, std::int64_t q_lora) {
  ModelDeck m = moe_deck(s, 0);
  m.kv_heads = 0;
  m.family = Family::deepseek_v3;
  m.attention = AttentionKind::mla;
  m.q_lora = q_lora, m.kv_lora = 512, m.nope_dim = 128, m.rope_dim = 64, m.value_dim = 128;
  return m;
}

inline ModelDeck with_head_norms(ModelDeck m) {
  m.qk_norm = true;
  return m;
}

// OLMoE's norms of queries and keys are as wide as all heads; 65 thousand parameters don't show in its figure.
inline std::vector<Published> published_models() {
  return {
      {"OLMoE-1B-7B", moe_deck({16, 2048, 1024, 1024, 16, 16, 64, 8, 0, 50304, 0}, 128), 6.92, 0.005},
      {"Moonlight-16B-A3B", mla_deck({27, 2048, 11264, 1408, 16, 0, 64, 6, 2, 163840, 1}, 0), 15.96, 0.005},
      {"DeepSeek-V2", mla_deck({60, 5120, 12288, 1536, 128, 0, 160, 6, 2, 102400, 1}, 1536), 235.7, 0.05},
      {"Qwen3-30B-A3B", with_head_norms(moe_deck({48, 2048, 6144, 768, 32, 4, 128, 8, 0, 151936, 0}, 128)), 30.53,
       0.005},
      {"Qwen3-235B-A22B", with_head_norms(moe_deck({94, 4096, 12288, 1536, 64, 4, 128, 8, 0, 151936, 0}, 128)), 235.1,
       0.05},
      {"DeepSeek-V3", mla_deck({61, 7168, 18432, 2048, 128, 0, 256, 8, 1, 129280, 3}, 1536), 671.0, 0.05},
      {"Kimi-K2", mla_deck({61, 7168, 18432, 2048, 64, 0, 384, 8, 1, 163840, 1}, 1536), 1026.4, 0.05},
      {"Mixtral 8x7B", moe_deck({32, 4096, 14336, 14336, 32, 8, 8, 2, 0, 32000, 0}, 128), 46.70, 0.005},
      {"KempnerForge MoE-S", moe_deck({24, 2048, 7168, 7168, 16, 4, 8, 2, 0, 128256, 0}, 128), 9.23, 0.005},
  };
}

}  // namespace forge::test

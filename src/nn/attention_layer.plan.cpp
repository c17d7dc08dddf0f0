#include "nn/attention_layer.plan.hpp"

namespace forge {

namespace {

// Key and value heads: fewer of them than tp ranks are copied.
std::vector<Split> kv_heads(const ModelSpec& s) {
  return {{0, s.D(), true}};
}
// One tensor of q's rows, then k's, then v's.
std::vector<Split> fused_heads(const ModelSpec& s) {
  const std::int64_t q = s.q_columns(), kv = s.kv_columns();
  return {{0, s.D(), false, 0, q}, {0, s.D(), true, q, kv}, {0, s.D(), true, q + kv, kv}};
}

}  // namespace

void add_attention_parameters(UnitBuilder& unit) {
  const ModelSpec& s = unit.spec;
  const std::string prefix = unit.hf_of_block() + (unit.gpt2() ? "attn.c_attn." : "self_attn.");
  const auto add = [&](const char* name, const char* hf, std::int64_t rows, std::vector<Split> split) {
    unit.add(Role::qkv, std::string("attention.") + name, prefix + hf + "weight", {rows, s.C()}, split, Initial::normal,
             unit.matrix_std(), unit.gpt2());
    if (s.options.qkv_bias)
      unit.add(Role::qkv_bias, std::string("attention.") + name + "_bias", prefix + hf + "bias", {rows}, split,
               Initial::zeros);
  };
  if (unit.gpt2()) {
    add("qkv", "", s.qkv_columns(), fused_heads(s));
  } else {
    add("q", "q_proj.", s.q_columns(), split_rows(s.D()));
    add("k", "k_proj.", s.kv_columns(), kv_heads(s));
    add("v", "v_proj.", s.kv_columns(), kv_heads(s));
  }
  if (!s.options.qk_norm) return;
  unit.add(Role::q_norm, "attention.q_norm", unit.hf_of_block() + "self_attn.q_norm.weight", {s.D()}, Initial::ones);
  unit.add(Role::k_norm, "attention.k_norm", unit.hf_of_block() + "self_attn.k_norm.weight", {s.D()}, Initial::ones);
}

}  // namespace forge

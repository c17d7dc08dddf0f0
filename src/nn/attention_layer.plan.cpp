#include "nn/attention_layer.plan.hpp"

namespace forge {

// Key and value heads: fewer of them than tp ranks are copied.
ShortList<QkvTensor, 3> qkv_tensors(const ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const std::int64_t D = s.D(), q = s.q_columns(), kv = s.kv_columns();
  if (l.gpt2())  // one tensor of q's rows, then k's, then v's
    return {
        {"qkv", "attn.c_attn.", s.qkv_columns(), {{0, D, false, 0, q}, {0, D, true, q, kv}, {0, D, true, q + kv, kv}}}};
  return {{"q", "self_attn.q_proj.", q, split_rows(D)},
          {"k", "self_attn.k_proj.", kv, {{0, D, true}}},
          {"v", "self_attn.v_proj.", kv, {{0, D, true}}}};
}

namespace {

// Kernels over the heads of q, then of k.
void add_to_heads(Operations& o, const char* name, std::int64_t reads, std::int64_t writes) {
  o.over_rows(name, o.R, o.spec.q_columns(), reads, writes);
  o.over_rows(name, o.R, o.spec.kv_columns(), reads, writes);
}

}  // namespace

void add_attention_operations(Operations& o, std::int64_t layer, Pass pass) {
  const ModelSpec& s = o.spec;
  const bool normalised = s.options.qk_norm;
  switch (pass) {
    case Pass::forward:
      add_norm_operations(o, pass, o.S, s.C());
      o.linear(o.R, s.qkv_columns(), s.C());
      if (s.options.qkv_bias) o.over_rows("add_bias", o.R, s.qkv_columns(), 1, 1);
      if (normalised) add_to_heads(o, "head_norm_forward", 1, 1);
      if (s.rope()) add_to_heads(o, "rotary", 1, 1);
      return add_attend_operations(o, layer, pass);
    case Pass::backward_input:
      add_attend_operations(o, layer, pass);
      if (s.rope()) add_to_heads(o, "rotary", 1, 1);
      if (normalised) {
        add_to_heads(o, "head_norm_weight_gradient", 2, 0);
        add_to_heads(o, "head_norm_backward", 2, 1);
      }
      o.linear_backward_input(o.R, s.qkv_columns(), s.C());
      return add_norm_operations(o, pass, o.S, s.C());
    case Pass::backward_weight:
      add_attend_operations(o, layer, pass);
      o.linear_backward_weight(o.R, s.qkv_columns(), s.C());
      if (s.options.qkv_bias) o.over_rows("column_sum", o.R, s.qkv_columns(), 1, 0);
  }
}

}  // namespace forge

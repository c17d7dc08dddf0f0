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

}  // namespace forge

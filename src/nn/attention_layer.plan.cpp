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

// A kernel over the heads of q and k.
void add_to_heads(Operations& o, const char* name, std::int64_t reads, std::int64_t writes) {
  o.over_rows(name, o.R, o.spec.q_columns() + o.spec.kv_columns(), reads, writes);
}

}  // namespace

MatrixSplit qkv_split(const BufferContext& c) {
  MatrixLines rows = split_lines(c.spec.q_columns());
  for (int part = 0; part < 2; ++part) rows.parts.push_back({c.spec.kv_columns(), c.fp8.kv_copies});
  return {rows, whole_lines(c.spec.C()), BlockProduct::qkv};
}

std::int64_t copied_gradients(const BufferContext& c) {
  return !c.spec.mla() && c.fp8.kv_copies > 1 ? c.microbatch.rows() * 2 * c.spec.kv_columns() : 0;
}
void add_sends_of_copies(Sends& sends) {
  const std::int64_t count = copied_gradients(sends.c);
  if (count > 0) sends.add(Group::tp, Collective::all_gather, count, sends.c.precision.compute);
}

void add_attention_operations(Operations& o, std::int64_t layer, Pass pass) {
  const ModelSpec& s = o.spec;
  const MatrixSplit qkv = qkv_split(o.c);
  const bool normalised = s.options.qk_norm;
  switch (pass) {
    case Pass::forward:
      add_norm_operations(o, pass, o.S, s.C());
      o.block_linear(ProductOf::output, o.R, qkv, o.c.tp == 1);
      if (s.options.qkv_bias) o.over_rows("add_bias", o.R, s.qkv_columns(), 1, 1);
      if (normalised || s.rope()) add_to_heads(o, normalised ? "head_norm_forward" : "rotary", 1, 1);
      return add_attend_operations(o, layer, pass);
    case Pass::backward_input:
      add_attend_operations(o, layer, pass);
      if (s.rope()) add_to_heads(o, "rotary", 1, 1);
      if (normalised) {
        add_to_heads(o, "head_norm_backward", 2, 1);
        o.row_kernels.back().launches = 4;  // of queries and of keys: the pass, and the sums of its chunks
      }
      o.block_linear(ProductOf::input_gradient, o.R, qkv);
      return add_norm_operations(o, pass, o.S, s.C());
    case Pass::backward_weight:
      add_attend_operations(o, layer, pass);
      o.block_linear(ProductOf::weight_gradient, o.R, qkv);
      if (s.options.qkv_bias) o.column_sums("column_sum", o.R, s.qkv_columns(), 1);
  }
}

}  // namespace forge

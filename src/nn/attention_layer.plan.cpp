#include "nn/attention_layer.plan.hpp"

#include "config/family.hpp"

namespace forge {

// Key and value heads: fewer of them than tp ranks are copied.
ShortList<QkvTensor, 3> qkv_tensors(const ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const std::int64_t D = s.D(), q = s.q_columns(), kv = s.kv_columns(), of_head = s.output_gate() ? 2 * D : D;
  if (const std::string_view fused = l.names().qkv; !fused.empty())  // q's rows, then k's, then v's
    return {{"qkv", fused, s.qkv_columns(), {{0, D, false, 0, q}, {0, D, true, q, kv}, {0, D, true, q + kv, kv}}}};
  return {{"q", "self_attn.q_proj.", s.q_rows(), split_rows(of_head)},
          {"k", "self_attn.k_proj.", kv, {{0, D, true}}},
          {"v", "self_attn.v_proj.", kv, {{0, D, true}}}};
}

namespace {

// A kernel over the heads of q and k.
RowKernel& over_heads(Segments& list, const char* name, std::int64_t reads, std::int64_t writes) {
  return list.over_rows(name, list.R, list.spec.q_columns() + list.spec.kv_columns(), reads, writes);
}
// Over what it rotates of them.
void list_rotary(Segments& list) {
  const ModelSpec& s = list.spec;
  const auto turn = [&](std::int64_t heads) { list.over_rows("rotary", list.R, heads * s.rotary_dim(), 1, 1); };
  if (!s.scales_queries()) return turn(s.H() + s.K());
  turn(s.H());
  turn(s.K());
}

// Norm and rotation of q and k, of all heads together, whose sums tp ranks add up.
void list_width_norm(Segments& list, std::int64_t layer, Pass pass) {
  const auto add_up = [&] { list.send(Group::tp, Collective::all_reduce, 2 * list.R, list.c.precision.accumulate); };
  if (pass == Pass::forward) {
    over_heads(list, "width_squares", 1, 0);
    add_up();
    list.over_rows("width_rstd", list.R, 2, 0, 0, 1, 1);
    over_heads(list, "width_norm_forward", 1, 1);
    if (list.spec.rotates(layer)) list_rotary(list);
    return;
  }
  if (list.spec.rotates(layer)) list_rotary(list);
  over_heads(list, "width_slopes", 2, 0);
  add_up();
  over_heads(list, "width_norm_backward", 2, 1).launches = list.frozen ? 1 : 4;
}

// Columns of gates between those of heads, to where they are read, or back.
void list_gates(Segments& list, const char* name) {
  list.over_rows(name, list.R, list.spec.projected_columns(), 1, 1);
}

// Of the first of the ranks with the same key heads, which adds up what they have.
void list_copied_gradients(Segments& list) {
  const std::int64_t copied = copied_gradients(list.c), copies = list.c.rounding.kv_copies;
  if (copied == 0) return;
  list.over_rows("copy_rows", copied, 1, 1, 1);
  list.send(Group::tp, Collective::all_gather, copied, list.c.precision.compute);
  for (std::int64_t other = 1; other < copies; ++other) list.over_rows("add", copied, 1, 2, 1);
  list.over_rows("copy_rows", copied, 1, 1, 1);
}

}  // namespace

MatrixSplit qkv_split(const BufferContext& c) {
  MatrixLines rows = split_lines(c.spec.q_rows());
  for (int part = 0; part < 2; ++part) rows.parts.push_back({c.spec.kv_columns(), c.rounding.kv_copies});
  return {rows, whole_lines(c.spec.C()), BlockProduct::qkv};
}

std::int64_t copied_gradients(const BufferContext& c) {
  return !c.spec.mla() && c.rounding.kv_copies > 1 ? c.microbatch.rows() * 2 * c.spec.kv_columns() : 0;
}

namespace {

// B up to this tp rank's part of the input's gradient; `pass`: alone, or with W.
void list_attention_input(Segments& list, std::int64_t layer, Pass pass) {
  const bool whole = list.spec.options.qk_norm_whole, normalised = list.spec.options.qk_norm && !whole;
  list_attend(list, layer, pass);
  if (whole) list_width_norm(list, layer, pass);
  // Of queries and of keys: the pass, and the sums of its chunks.
  if (normalised) over_heads(list, "head_norm_backward", 2, 1).launches = list.frozen ? 2 : 4;
  if (!normalised && !whole && list.spec.rotates(layer)) list_rotary(list);
  if (list.rounds) list_copied_gradients(list);
  if (list.spec.output_gate()) list_gates(list, "join_gates");
  list.block_linear(ProductOf::input_gradient, list.R, qkv_split(list.c));
  list_adapter(list, BlockProduct::qkv, ProductOf::input_gradient);
}

void list_attention_weight(Segments& list, std::int64_t layer) {
  const ModelSpec& s = list.spec;
  const MatrixSplit qkv = qkv_split(list.c);
  if (!list.frozen) list.join_codes(ProductOf::weight_gradient, list.R, attention_out_split(s, layer), qkv);
  list_attend(list, layer, Pass::backward_weight);
  if (!list.frozen) list.block_linear(ProductOf::weight_gradient, list.R, qkv);
  list_adapter(list, BlockProduct::qkv, ProductOf::weight_gradient);
  if (s.options.qkv_bias && !list.frozen) list.column_sums("column_sum", list.R, s.projected_columns(), 1);
}

}  // namespace

void list_attention(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const bool whole = s.options.qk_norm_whole, normalised = s.options.qk_norm && !whole;
  switch (pass) {
    case Pass::forward:
      if (s.norms_before()) list_norm(list, pass, list.S, s.C());
      list.gather_rows(s.C());
      list.block_linear(ProductOf::output, list.R, qkv_split(list.c), list.c.tp == 1 && s.norms_before());
      if (s.options.qkv_bias) list.over_rows("add_bias", list.R, s.projected_columns(), 1, 1);
      list_adapter(list, BlockProduct::qkv, ProductOf::output);
      if (s.output_gate()) list_gates(list, "split_gates");
      if (normalised) over_heads(list, "head_norm_forward", 1, 1);
      if (whole) list_width_norm(list, layer, pass);
      if (!normalised && !whole && s.rotates(layer)) list_rotary(list);
      return list_attend(list, layer, pass);
    case Pass::backward_input:
      list_attention_input(list, layer, pass);
      list.reduce_rows(s.C());
      return list_stream_gradient(list);
    case Pass::backward_weight:
      list.gather_rows(s.C());
      return list_attention_weight(list, layer);
    case Pass::backward:
      list_attention_input(list, layer, pass);
      list.wait_behind();
      list.reduce_behind(s.C());
      list_attention_weight(list, layer);
      list.wait_behind();
      list_stream_gradient(list);
  }
}

}  // namespace forge

#include "nn/delta_layer.plan.hpp"

#include <cmath>

#include "config/family.hpp"

namespace forge {

namespace {

// q's heads, k's and v's one behind the other, `times` numbers for each row of a projection.
Splits split_heads(const ModelDeck& o, std::int64_t times = 1) {
  const std::int64_t Dk = o.linear_key_dim * times, Dv = o.linear_value_dim * times, keys = o.linear_key_heads * Dk;
  return {{0, Dk, false, 0, keys}, {0, Dk, false, keys, keys}, {0, Dv, false, 2 * keys, o.linear_value_heads * Dv}};
}

}  // namespace

template <class P>
void DeltaParameters<P>::list(ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const ModelDeck& o = s.options;
  const std::int64_t heads = o.linear_value_heads;
  const auto projection = [&](std::string_view name, std::string_view hf, std::int64_t rows, const Splits& split,
                              std::int64_t groups = 0) {
    TensorSpec tensor{{"delta.", name}, {"linear_attn.", hf, ".weight"}, {rows, s.C()}, split, Initial::normal,
                      l.matrix_std()};
    tensor.groups = groups;
    l.tensor(tensor);
  };
  this->list_norm(l);
  l.start(in, {{s.linear_columns(), s.C()}});
  if (l.names().linear_groups) {
    Splits qkvz = split_heads(o);
    qkvz.push_back({0, o.linear_value_dim, false, s.linear_channels(), s.linear_values()});
    projection("qkvz", "in_proj_qkvz", s.linear_channels() + s.linear_values(), qkvz, o.linear_key_heads);
    projection("ba", "in_proj_ba", 2 * heads, {{0, 1, false, 0, heads}, {0, 1, false, heads, heads}},
               o.linear_key_heads);
  } else {
    projection("qkv", "in_proj_qkv", s.linear_channels(), split_heads(o));
    projection("z", "in_proj_z", s.linear_values(), split_rows(o.linear_value_dim));
    projection("b", "in_proj_b", heads, split_rows());
    projection("a", "in_proj_a", heads, split_rows());
  }
  const double bound = 1 / std::sqrt(static_cast<double>(o.linear_conv_taps));
  TensorSpec taps{{"delta.conv"},
                  {"linear_attn.conv1d.weight"},
                  {s.linear_channels() * o.linear_conv_taps},
                  split_heads(o, o.linear_conv_taps),
                  Initial::uniform,
                  bound};
  taps.hf_shape = {s.linear_channels(), 1, o.linear_conv_taps};
  l.add(conv, taps);
  constexpr double largest_decay = 16;
  l.add(log_decay,
        {{"delta.log_decay"}, {"linear_attn.A_log"}, {heads}, split_rows(), Initial::log_uniform, largest_decay});
  l.add(time_bias, {{"delta.time_bias"}, {"linear_attn.dt_bias"}, {heads}, split_rows(), Initial::ones});
  l.add(norm, {{"delta.norm"}, {"linear_attn.norm.weight"}, {o.linear_value_dim}, {}, Initial::ones});
  this->list_output(l);
}

#define FORGE_INSTANTIATE(T)                \
  template struct DeltaParameters<const T>; \
  template struct DeltaParameters<T>;
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

MatrixSplit delta_in_split(const ModelSpec& s) {
  return {split_lines(s.linear_columns()), whole_lines(s.C()), BlockProduct::qkv};
}

namespace {

// Of this rank's rows and all heads, as many as of all rows and a cp rank's heads.
std::int64_t bytes_of(const Segments& list, std::int64_t columns) {
  return list.R * columns * static_cast<std::int64_t>(size_of(list.c.precision.compute));
}

// The convolution of the channels of this cp rank: so many launches for each part of them.
void list_conv(Segments& list, std::string_view name, std::int64_t reads, std::int64_t writes, std::int64_t launches) {
  const std::int64_t channels = bytes_of(list, list.spec.linear_channels());
  const std::int64_t parts = std::ssize(conv_parts(list.c, list.cp_rank));
  list.add(RowKernel{name, list.c.microbatch.rows_of_all(), delta_shape(list.c).channels(), reads * channels,
                     writes * channels, launches * parts});
}

// B up to this tp rank's part of the input's gradient.
void list_delta_input(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const std::int64_t values = bytes_of(list, s.linear_values()), all = list.c.microbatch.rows_of_all();
  const bool sums = !list.frozen;
  list_output_gradient(list);
  list.gather_rows(s.C());
  if (pass == Pass::backward && !keeps_gathered(list.c)) list.gather_behind(s.C());
  list.block_linear(ProductOf::input_gradient, list.R, attention_out_split(s, layer));
  list.add(RowKernel{"gated_norm_backward", list.R, s.linear_values(), 6 * values, 2 * values, sums ? 3 : 1});
  list_delta_heads(list, delta_value_columns(list.c), false);
  list_delta_rule(list, true);
  if (sums) {
    const std::int64_t heads = delta_shape(list.c).value_heads;
    list.over_rows("column_sum", all, heads, 0, 0, 1).launches = 2;
    list.column_sums("column_sum", all, heads, 1);
  }
  list_conv(list, "delta_conv_backward", 5, 2, sums ? 4 : 2);
  list_delta_heads(list, delta_head_columns(list.c), true);
  list.block_linear(ProductOf::input_gradient, list.R, delta_in_split(s));
}

void list_delta_weight(Segments& list, std::int64_t layer) {
  if (list.frozen) return;
  list.block_linear(ProductOf::weight_gradient, list.R, attention_out_split(list.spec, layer));
  list.block_linear(ProductOf::weight_gradient, list.R, delta_in_split(list.spec));
}

}  // namespace

void list_delta(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const std::int64_t values = bytes_of(list, s.linear_values());
  switch (pass) {
    case Pass::forward:
      if (s.norms_before()) list_norm(list, pass, list.S, s.C());
      list.gather_rows(s.C());
      list.block_linear(ProductOf::output, list.R, delta_in_split(s), list.c.tp == 1 && s.norms_before());
      if (list.c.microbatch.cp > 1) list.over_rows("copy_rows", list.R, s.linear_values(), 1, 1);
      list_delta_heads(list, delta_head_columns(list.c), false);
      list_conv(list, "delta_conv_forward", 1, 1, 1);
      list_delta_rule(list, false);
      list_delta_heads(list, delta_value_columns(list.c), true);
      list.add(RowKernel{"gated_norm_forward", list.R, s.linear_values(), 2 * values, values});
      list.block_linear(ProductOf::output, list.R, attention_out_split(s, layer));
      return list.reduce_rows(s.C());
    case Pass::backward_input:
      list_delta_input(list, layer, pass);
      list.reduce_rows(s.C());
      return list_stream_gradient(list);
    case Pass::backward_weight:
      list.gather_rows(s.C());
      return list_delta_weight(list, layer);
    case Pass::backward:
      list_delta_input(list, layer, pass);
      list.wait_behind();
      list.reduce_behind(s.C());
      list_delta_weight(list, layer);
      list.wait_behind();
      list_stream_gradient(list);
  }
}

}  // namespace forge

#include "nn/delta_layer.plan.hpp"

#include <cmath>

#include "nn/delta_tensors.plan.hpp"

namespace forge {

template <class P>
void DeltaParameters<P>::list(ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const ModelDeck& o = s.options;
  const std::int64_t heads = o.linear_value_heads;
  this->list_norm(l);
  l.start(in, {{s.linear_columns(), s.C()}});
  for (const DeltaTensor& t : delta_tensors(s))
    l.tensor({.name = {t.name},
              .hf = {"linear_attn.", t.hf, ".weight"},
              .shape = {t.rows, s.C()},
              .split = t.split,
              .initial = Initial::normal,
              .std = l.matrix_std(),
              .groups = t.groups});
  const double bound = 1 / std::sqrt(static_cast<double>(o.linear_conv_taps));
  TensorSpec taps{{"delta.conv"},
                  {"linear_attn.conv1d.weight"},
                  {s.linear_channels() * o.linear_conv_taps},
                  split_delta_heads(o, o.linear_conv_taps),
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

FORGE_INSTANTIATE_PARAMETERS(DeltaParameters);

MatrixSplit delta_in_split(const ModelSpec& s, bool rounds) {
  const std::int64_t rows = rounds ? s.linear_channels() + s.linear_values() : s.linear_columns();
  return {split_lines(rows), whole_lines(s.C()), BlockProduct::qkv};
}

namespace {

void list_projections(Segments& list, ProductOf of) {
  const ModelSpec& s = list.spec;
  const MatrixSplit split = delta_in_split(s, list.rounds);
  const std::int64_t rest = s.linear_columns() - split.rows.count();
  list.block_linear(of, list.R, split, of == ProductOf::output && list.c.tp == 1 && s.norms_before(),
                    of != ProductOf::output || s.linear_columns() % 8 == 0);
  if (rest == 0) return;
  if (of == ProductOf::output) list.linear(list.R, rest, s.C());
  if (of == ProductOf::input_gradient) list.linear_backward_input(list.R, rest, s.C());
  if (of == ProductOf::weight_gradient) list.linear_backward_weight(list.R, rest, s.C());
}

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
  list_adapter(list, delta_out, ProductOf::input_gradient);
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
  list_projections(list, ProductOf::input_gradient);
  list_adapter(list, delta_in, ProductOf::input_gradient);
}

void list_delta_weight(Segments& list, std::int64_t layer) {
  if (!list.frozen) list.block_linear(ProductOf::weight_gradient, list.R, attention_out_split(list.spec, layer));
  list_adapter(list, delta_out, ProductOf::weight_gradient);
  if (!list.frozen) list_projections(list, ProductOf::weight_gradient);
  list_adapter(list, delta_in, ProductOf::weight_gradient);
}

}  // namespace

void list_delta(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const std::int64_t values = bytes_of(list, s.linear_values());
  switch (pass) {
    case Pass::forward:
      if (s.norms_before()) list_norm(list, pass, list.S, s.C());
      list.gather_rows(s.C());
      list_projections(list, ProductOf::output);
      list_adapter(list, delta_in, ProductOf::output);
      if (list.c.microbatch.cp > 1) list.over_rows("copy_rows", list.R, s.linear_values(), 1, 1);
      list_delta_heads(list, delta_head_columns(list.c), false);
      list_conv(list, "delta_conv_forward", 1, 1, 1);
      list_delta_rule(list, false);
      list_delta_heads(list, delta_value_columns(list.c), true);
      list.add(RowKernel{"gated_norm_forward", list.R, s.linear_values(), 2 * values, values});
      list.block_linear(ProductOf::output, list.R, attention_out_split(s, layer));
      list_adapter(list, delta_out, ProductOf::output);
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

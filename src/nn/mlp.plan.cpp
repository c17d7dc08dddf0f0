#include "nn/mlp.plan.hpp"

namespace forge {

template <class P>
void MlpParameters<P>::list(ParameterLister& l, std::int64_t ffn, bool biases, const MlpNames& n) {
  const ModelSpec& s = l.spec;
  const std::string_view up_hf = l.hf("up_proj.", "c_fc."), down_hf = l.hf("down_proj.", "c_proj.");
  const auto up_weight = [&](std::string_view name, std::string_view hf) {
    l.tensor({{n.own, name},
              {n.hf, n.inner_hf, hf, "weight"},
              {ffn, s.C()},
              split_rows(),
              Initial::normal,
              l.matrix_std(),
              l.gpt2()});
  };
  const auto up_bias_of = [&](std::string_view name, std::string_view hf) {
    l.tensor({{n.own, name, "_bias"}, {n.hf, n.inner_hf, hf, "bias"}, {ffn}, split_rows()});
  };
  l.start(up, {{s.up_columns(ffn), s.C()}});
  if (s.gated()) up_weight("gate", "gate_proj.");
  up_weight("up", up_hf);
  l.add(down, {{n.own, "down"},
               {n.hf, n.inner_hf, down_hf, "weight"},
               {s.C(), ffn},
               split_columns(),
               Initial::normal,
               l.output_std(),
               l.gpt2()});
  if (!biases) return;
  l.start(up_bias, {{s.up_columns(ffn)}});
  if (s.gated()) up_bias_of("gate", "gate_proj.");
  up_bias_of("up", up_hf);
  l.add(down_bias, {{n.own, "down_bias"}, {n.hf, n.inner_hf, down_hf, "bias"}, {s.C()}}, Section::output_biases);
}

#define FORGE_INSTANTIATE(T)              \
  template struct MlpParameters<const T>; \
  template struct MlpParameters<T>;
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

MatrixSplit mlp_up_split(const ModelSpec& s, std::int64_t ffn) {
  MatrixLines rows = split_lines(ffn);
  if (s.gated()) rows.parts.push_back({ffn, 1});
  return {rows, whole_lines(s.C()), BlockProduct::gate_up};
}
MatrixSplit mlp_down_split(const ModelSpec& s, std::int64_t ffn) {
  return {whole_lines(s.C()), split_lines(ffn), BlockProduct::down};
}

void add_mlp_sends(Sends& sends, Pass pass, bool output) {
  sends.rows(Collective::all_gather);
  if (pass == Pass::backward_input || (pass == Pass::forward && output)) sends.rows(Collective::reduce_scatter);
}

void add_activation_operations(Operations& o, std::int64_t ffn) {
  o.over_rows(o.spec.gated() ? "swiglu_forward" : "pointwise_forward", o.R, ffn, o.spec.gated() ? 2 : 1, 1);
}

void add_mlp_operations(Operations& o, Pass pass, std::int64_t ffn, bool biases, bool output) {
  const ModelSpec& s = o.spec;
  const std::int64_t up = s.up_columns(ffn);
  const MatrixSplit up_split = mlp_up_split(s, ffn), down_split = mlp_down_split(s, ffn);
  switch (pass) {
    case Pass::forward:
      o.block_linear(ProductOf::output, o.R, up_split, o.c.tp == 1);
      if (biases) o.over_rows("add_bias", o.R, up, 1, 1);
      add_activation_operations(o, ffn);
      if (!output) return;
      o.block_linear(ProductOf::output, o.R, down_split, true);
      if (biases) o.over_rows("add_bias", o.S, s.C(), 1, 1);
      return;
    case Pass::backward_input:
      o.block_linear(ProductOf::input_gradient, o.R, down_split);
      o.over_rows(s.gated() ? "swiglu_backward" : "pointwise_backward", o.R, ffn, s.gated() ? 3 : 2, s.gated() ? 2 : 1);
      return o.block_linear(ProductOf::input_gradient, o.R, up_split, true);
    case Pass::backward_weight:
      o.block_linear(ProductOf::weight_gradient, o.R, down_split);
      o.block_linear(ProductOf::weight_gradient, o.R, up_split);
      if (!biases) return;
      o.column_sums("column_sum", o.S, s.C(), 1);
      o.column_sums("column_sum", o.R, up, 1);
  }
}

}  // namespace forge

#include "nn/mlp.plan.hpp"

#include "config/family.hpp"

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
  if (const std::string_view fused = l.names().gate_up; s.gated() && !fused.empty()) {
    l.tensor({{n.own, "gate_up"},
              {n.hf, n.inner_hf, fused, "weight"},
              {2 * ffn, s.C()},
              {{0, 1, false, 0, ffn}, {0, 1, false, ffn, ffn}},
              Initial::normal,
              l.matrix_std()});
  } else {
    if (s.gated()) up_weight("gate", "gate_proj.");
    up_weight("up", up_hf);
  }
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

FORGE_INSTANTIATE_PARAMETERS(MlpParameters);

MatrixSplit mlp_up_split(const ModelSpec& s, std::int64_t ffn) {
  MatrixLines rows = split_lines(ffn);
  if (s.gated()) rows.parts.push_back({ffn, 1});
  return {rows, whole_lines(s.C()), BlockProduct::gate_up};
}
MatrixSplit mlp_down_split(const ModelSpec& s, std::int64_t ffn) {
  return {whole_lines(s.C()), split_lines(ffn), BlockProduct::down};
}

void list_activation(Segments& list, std::int64_t ffn, bool codes) {
  const bool gated = list.spec.gated();
  RowKernel& kernel = list.over_rows(gated ? "swiglu_forward" : "pointwise_forward", list.R, ffn, gated ? 2 : 1, 1);
  if (codes) kernel.written_bytes += list.R * ffn;
}

namespace {

// B up to this tp rank's part of the input's gradient, with all rows of the output's.
void list_mlp_input(Segments& list, const MlpShape& mlp, const MatrixSplit& up, const MatrixSplit& down,
                    bool activates) {
  const bool gated = list.spec.gated();
  const std::int64_t ffn = mlp.ffn;
  const bool codes = list.join_codes(ProductOf::input_gradient, list.R, down, up);
  list.block_linear(ProductOf::input_gradient, list.R, down);
  list_adapter(list, {BlockProduct::down, mlp.shared}, ProductOf::input_gradient);
  list.over_rows(gated ? "swiglu_backward" : "pointwise_backward", list.R, ffn, gated ? 3 : 2,
                 (gated ? 2 : 1) + activates)
      .written_bytes += codes ? list.R * list.spec.up_columns(ffn) : 0;
  if (list.c.recompute == Recompute::full && !recomputes_output(list.c))
    list_low_rows(list, {BlockProduct::down, mlp.shared});
  list.block_linear(ProductOf::input_gradient, list.R, up, true);
  list_adapter(list, {BlockProduct::gate_up, mlp.shared}, ProductOf::input_gradient);
}

void list_mlp_weight(Segments& list, const MlpShape& mlp, const MatrixSplit& up, const MatrixSplit& down) {
  if (!list.frozen) list.join_codes(ProductOf::weight_gradient, list.R, down, up);
  if (!list.frozen) list.block_linear(ProductOf::weight_gradient, list.R, down);
  list_adapter(list, {BlockProduct::down, mlp.shared}, ProductOf::weight_gradient);
  if (!list.frozen) list.block_linear(ProductOf::weight_gradient, list.R, up);
  list_adapter(list, {BlockProduct::gate_up, mlp.shared}, ProductOf::weight_gradient);
  if (!mlp.biases || list.frozen) return;
  list.column_sums("column_sum", list.S, list.spec.C(), 1);
  list.column_sums("column_sum", list.R, list.spec.up_columns(mlp.ffn), 1);
}

}  // namespace

void list_mlp(Segments& list, Pass pass, const MlpShape& mlp, bool output, bool gate, bool activates) {
  const ModelSpec& s = list.spec;
  const std::int64_t C = s.C(), ffn = mlp.ffn;
  const MatrixSplit up_split = mlp_up_split(s, ffn), down_split = mlp_down_split(s, ffn);
  bool codes = false;  // of the activation's rows
  list.gather_rows(C);
  switch (pass) {
    case Pass::forward:
      codes = output && list.join_codes(ProductOf::output, list.R, up_split, down_split);
      list.block_linear(ProductOf::output, list.R, up_split, list.c.tp == 1 && s.norms_before());
      if (mlp.biases) list.over_rows("add_bias", list.R, s.up_columns(ffn), 1, 1);
      list_adapter(list, {BlockProduct::gate_up, mlp.shared}, ProductOf::output);
      if (output || !activates_in_backward(list.c, list.rounds)) list_activation(list, ffn, codes);
      if (gate) {
        list.linear_to_sums(list.S, 1, C);
        list.over_rows("sigmoid", list.S, 1, 0, 0, 1, 1);
      }
      if (!output) return;
      list.block_linear(ProductOf::output, list.R, down_split, true);
      list_adapter(list, {BlockProduct::down, mlp.shared}, ProductOf::output);
      list.reduce_rows(C);
      if (mlp.biases) list.over_rows("add_bias", list.S, C, 1, 1);
      return;
    case Pass::backward_input:
      list_mlp_input(list, mlp, up_split, down_split, activates);
      return list.reduce_rows(C);
    case Pass::backward_weight:
      return list_mlp_weight(list, mlp, up_split, down_split);
    case Pass::backward:
      if (!keeps_gathered(list.c)) list.gather_behind(C);
      list_mlp_input(list, mlp, up_split, down_split, activates);
      list.wait_behind();
      list.reduce_behind(C);
      list_mlp_weight(list, mlp, up_split, down_split);
      list.wait_behind();
  }
}

}  // namespace forge

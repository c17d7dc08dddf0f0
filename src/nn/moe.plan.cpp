#include "nn/moe.plan.hpp"
#include "config/family.hpp"

namespace forge {

template <class P>
void ExpertParameters<P>::list(ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const TensorNames names = l.names();
  const auto each = [&](auto declare) {  // a rank's Views take no names
    for (std::int64_t e = 0; l.declares() && e < s.E(); ++e) declare(e, std::to_string(e));
  };
  const auto matrix = [&](std::int64_t e, const std::string& number, std::string_view name, const std::string& hf,
                          ShortList<std::int64_t, 2> shape, const Splits& split, double std) {
    const std::string prefix = names.moe + ("experts." + number + ".");
    l.tensor({{"experts.", number, ".", name}, {prefix, hf, ".weight"}, shape, split, Initial::normal, std, false, e});
  };
  l.start(up, {{s.E(), s.up_columns(s.Fe()), s.C()}});
  each([&](std::int64_t e, const std::string& number) {
    if (s.gated()) matrix(e, number, "gate", names.gate, {s.Fe(), s.C()}, split_rows(), l.matrix_std());
    matrix(e, number, "up", names.up, {s.Fe(), s.C()}, split_rows(), l.matrix_std());
  });
  l.start(down, {{s.E(), s.C(), s.Fe()}});
  each([&](std::int64_t e, const std::string& number) {
    matrix(e, number, "down", names.down, {s.C(), s.Fe()}, split_columns(), l.output_std());
  });
}

template <class P>
void MoeParameters<P>::list(ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const TensorNames names = l.names();
  l.add(router, {{"router"}, {names.moe, "gate.weight"}, {s.E(), s.C()}, {}, Initial::normal, l.matrix_std()});
  if (s.Fs() > 0) shared.list(l, s.Fs(), false, {"shared.", names.moe, names.shared});
  if (s.options.shared_expert_gate)
    l.add(shared_gate,
          {{"shared.output_gate"},
           {names.moe, "shared_expert_gate.weight"},
           {1, s.C()},
           {},
           Initial::normal,
           l.matrix_std()},
          Section::vectors);
}

#define FORGE_INSTANTIATE(T)                 \
  template struct ExpertParameters<const T>; \
  template struct ExpertParameters<T>;       \
  template struct MoeParameters<const T>;    \
  template struct MoeParameters<T>;
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

MatrixSplit expert_up_split(const ModelSpec& s, std::int64_t ffn) {
  MatrixSplit w = mlp_up_split(s, ffn);
  w.product = BlockProduct::expert_gate_up;
  return w;
}
MatrixSplit expert_down_split(const ModelSpec& s, std::int64_t ffn) {
  MatrixSplit w = mlp_down_split(s, ffn);
  w.product = BlockProduct::expert_down;
  return w;
}

ScaledOperand rows_to_experts(const BufferContext& c, ProductOf of, std::int64_t rows) {
  const std::int64_t ffn = moe_shape(c).ffn;
  const bool output = of == ProductOf::output;
  return scaled_experts(c, of, rows, output ? expert_up_split(c.spec, ffn) : expert_down_split(c.spec, ffn), 0).a;
}

RouterBias router_bias_of(const ModelSpec& s, std::int64_t layer) {
  const std::string unit = "layers." + std::to_string(layer);
  return {layer, unit + ".router_bias",
          hf_block_name(s, layer) + tensor_names(s.options.family).moe + "gate.e_score_correction_bias"};
}

void add_moe_sends(Sends& sends, Pass pass, bool recompute, bool codes) {
  const ModelSpec& s = sends.c.spec;
  const DType value = sends.c.precision.compute, sum = sends.c.precision.accumulate;
  const auto add_rows_out = [&](ProductOf of) {
    if (!codes) return add_sends_out(sends, s.C(), value);
    add_sends_out(sends, coded_row_bytes(rows_to_experts(sends.c, of, sends.c.stream_rows())), DType::u8);
  };
  if (s.Fs() > 0) add_mlp_sends(sends, pass, !recompute || s.options.shared_expert_gate);
  if (pass == Pass::forward) {
    add_router_sends(sends);
    add_sends_of_counts(sends);
    add_rows_out(ProductOf::output);
    add_sends_out(sends, 1, sum);
    if (!recompute) add_sends_back(sends, s.C(), value);
  } else if (pass == Pass::backward_input) {
    add_rows_out(ProductOf::input_gradient);
    add_sends_back(sends, s.C(), value);
    add_sends_back(sends, 1, sum);
  }
}

void add_moe_activation_operations(Operations& o) {
  if (o.spec.Fs() > 0) add_activation_operations(o, o.spec.Fs());
  o.over_rows("weighted_swiglu_forward", expected_expert_rows(o.c), moe_shape(o.c).ffn, 2, 1);
}

namespace {

void add_rows_out(Operations& o, ProductOf of) {
  if (!o.fp8 || !o.c.fp8.dispatch) return add_operations_out(o);
  add_coded_operations_out(o, rows_to_experts(o.c, of, o.S));
}

void add_forward(Operations& o, bool recompute) {
  const ModelSpec& s = o.spec;
  const MoeShape m = moe_shape(o.c);
  const std::int64_t rows = expected_expert_rows(o.c);
  const bool gate = s.options.shared_expert_gate;
  add_router_operations(o, Pass::forward);
  add_sort_operations(o);
  o.count_reads += m.reads_counts;
  add_operations_of_received(o);
  add_rows_out(o, ProductOf::output);
  add_operations_of_weights(o, Pass::forward);
  if (s.Fs() > 0) add_mlp_operations(o, Pass::forward, s.Fs(), false, false);
  if (gate) o.linear_to_sums(o.S, 1, s.C());
  if (s.Fs() > 0 && (!recompute || gate)) o.block_linear(ProductOf::output, o.R, mlp_down_split(s, s.Fs()));
  if (gate && !recompute) o.over_rows("gate_rows", o.S, s.C(), 1, 1);
  o.expert_linear(ProductOf::output, rows, expert_up_split(s, m.ffn));
  o.over_rows("weighted_swiglu_forward", rows, m.ffn, 2, 1);
  if (recompute) return;
  o.expert_linear(ProductOf::output, rows, expert_down_split(s, m.ffn));
  add_operations_back(o, s.Fs() > 0);
}

void add_backward_input(Operations& o) {
  const ModelSpec& s = o.spec;
  const MoeShape m = moe_shape(o.c);
  const std::int64_t rows = expected_expert_rows(o.c);
  const bool gate = s.options.shared_expert_gate;
  if (s.options.dropout > 0) o.over_rows("dropout", o.S, s.C(), 1, 1);
  o.count_reads += m.reads_counts;
  add_operations_of_received(o);
  add_rows_out(o, ProductOf::input_gradient);
  if (gate) o.over_rows("gate_rows_backward", o.S, s.C(), 2, 1);
  if (s.Fs() > 0) add_mlp_operations(o, Pass::backward_input, s.Fs(), false);
  if (gate) o.linear_backward_input(o.S, 1, s.C());
  o.expert_linear(ProductOf::weight_gradient, rows, expert_down_split(s, m.ffn));
  o.expert_linear(ProductOf::input_gradient, rows, expert_down_split(s, m.ffn));
  o.over_rows("weighted_swiglu_backward", rows, m.ffn, 3, 2);
  o.expert_linear(ProductOf::weight_gradient, rows, expert_up_split(s, m.ffn));
  o.expert_linear(ProductOf::input_gradient, rows, expert_up_split(s, m.ffn));
  add_operations_back(o, s.Fs() > 0);
  add_operations_of_weights(o, Pass::backward_input);
  add_router_operations(o, Pass::backward_input);
}

}  // namespace

void add_moe_operations(Operations& o, Pass pass, bool recompute) {
  if (pass == Pass::forward) return add_forward(o, recompute);
  if (pass == Pass::backward_input) return add_backward_input(o);
  add_router_operations(o, pass);
  if (o.spec.Fs() > 0) add_mlp_operations(o, pass, o.spec.Fs(), false);
  if (o.spec.options.shared_expert_gate) o.linear_backward_weight(o.S, 1, o.spec.C());
}

}  // namespace forge

#include "nn/moe.plan.hpp"
#include "config/family.hpp"
#include "nn/attend.plan.hpp"

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
    l.tensor({{"experts.", number, ".", name},
              {prefix, hf, ".weight"},
              shape,
              split,
              Initial::normal,
              std,
              names.packed,
              e,
              0,
              names.packed ? s.E() : 0});
  };
  const auto bias = [&](std::int64_t e, const std::string& number, std::string_view name, const std::string& hf,
                        std::int64_t entries) {
    const std::string prefix = names.moe + ("experts." + number + "."), own = std::string(name) + "_bias";
    l.tensor({{"experts.", number, ".", own},
              {prefix, hf, ".bias"},
              {entries},
              split_rows(),
              Initial::zeros,
              0,
              false,
              e,
              0,
              names.packed ? s.E() : 0});
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
  if (!s.options.expert_bias) return;
  l.start_vectors(up_bias, up.rows());
  each([&](std::int64_t e, const std::string& number) {
    if (s.gated()) bias(e, number, "gate", names.gate, s.Fe());
    bias(e, number, "up", names.up, s.Fe());
  });
  l.start_vectors(down_bias, up.rows());
  each([&](std::int64_t e, const std::string& number) { bias(e, number, "down", names.down, s.C()); });
}

template <class P>
void ExpertParameters<P>::list_adapters(ParameterLister& l) {
  up_adapter.list(l, BlockProduct::expert_gate_up);
  down_adapter.list(l, BlockProduct::expert_down);
}

template <class P>
void MoeParameters<P>::list(ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const TensorNames names = l.names();
  l.add(router, {{"router"}, {names.moe, names.router, "weight"}, {s.E(), s.C()}, {}, Initial::normal, l.matrix_std()});
  if (s.options.router_logit_bias)
    l.add(router_bias, {{"router_logit_bias"}, {names.moe, names.router, "bias"}, {s.E()}});
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

FORGE_INSTANTIATE_PARAMETERS(ExpertParameters);
FORGE_INSTANTIATE_PARAMETERS(MoeParameters);

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

BiasColumns down_bias_columns(const BufferContext& c, int etp_rank) {
  const std::int64_t C = c.spec.C(), each = (C + c.etp - 1) / c.etp, first = std::min(etp_rank * each, C);
  return {first, std::min(each, C - first)};
}

RouterBias router_bias_of(const ModelSpec& s, std::int64_t layer) {
  const std::string unit = "layers." + std::to_string(layer);
  return {layer, unit + ".router_bias",
          hf_block_name(s, layer) + tensor_names(s.options.family).moe + tensor_names(s.options.family).router_bias};
}

void list_moe_activation(Segments& list) {
  if (list.spec.Fs() > 0 && activates_before_backward(list.c, list.rounds)) list_activation(list, list.spec.Fs());
  if (!activates_before_backward(list.c, list.rounds, Recompute::expert_activations)) return;
  // Of all rows that there is room for.
  list.over_rows("weighted_swiglu_forward", moe_shape(list.c).round_rows, moe_shape(list.c).ffn, 2, 1);
}

namespace {

// Forward with their weights.
void list_to_experts(Segments& list, ProductOf of) {
  const bool weights = of == ProductOf::output;
  if (!list.rounds || !list.c.rounding.dispatch) return list_rows_out(list, nullptr, weights);
  const ScaledOperand codes = rows_to_experts(list.c, of, list.S);
  list_rows_out(list, &codes, weights);
}

void list_forward(Segments& list, bool recompute) {
  const ModelSpec& s = list.spec;
  const std::int64_t rows = expected_expert_rows(list.c), ffn = moe_shape(list.c).ffn,
                     bias_columns = down_bias_columns(list.c, 0).columns;
  const bool gate = s.options.shared_expert_gate;
  list_router(list, Pass::forward);
  list_sort(list);
  list_to_experts(list, ProductOf::output);
  if (s.Fs() > 0) list_mlp(list, Pass::forward, {s.Fs(), false, true}, !recompute || gate, gate);
  if (gate && !recompute) list.over_rows("gate_rows", list.S, s.C(), 1, 1);
  list.expert_linear(ProductOf::output, rows, expert_up_split(s, ffn));
  if (s.options.expert_bias) list.over_rows("expert_bias_forward", rows, s.up_columns(ffn), 1, 1);
  list_expert_adapter(list, BlockProduct::expert_gate_up, ProductOf::output, rows);
  if (!recompute || !activates_in_backward(list.c, list.rounds, Recompute::expert_activations))
    list.over_rows("weighted_swiglu_forward", rows, ffn, 2, 1);
  if (recompute) return;
  list.expert_linear(ProductOf::output, rows, expert_down_split(s, ffn));
  if (s.options.expert_bias) list.over_rows("expert_bias_forward", rows, bias_columns, 1, 1);
  list_expert_adapter(list, BlockProduct::expert_down, ProductOf::output, rows);
  list_rows_back(list, s.Fs() > 0, false);
}

// `pass`: alone, or with W of the shared experts.
void list_backward_input(Segments& list, Pass pass) {
  const ModelSpec& s = list.spec;
  const std::int64_t rows = expected_expert_rows(list.c), ffn = moe_shape(list.c).ffn,
                     bias_columns = down_bias_columns(list.c, 0).columns;
  const bool gate = s.options.shared_expert_gate, biases = s.options.expert_bias,
             activates = activates_in_backward(list.c, list.rounds, Recompute::expert_activations),
             shared_activates = activates_in_backward(list.c, list.rounds) && !recomputes_shared_output(list.c);
  if (s.options.dropout > 0) list.over_rows("dropout", list.S, s.C(), 1, 1);
  list_to_experts(list, ProductOf::input_gradient);
  if (gate)
    list.over_rows("gate_rows_backward", list.S, s.C(), 2, 1);
  else if (s.Fs() > 0 && output_rows_differ(list.c))
    list.over_rows("copy_rows", list.S, s.C(), 1, 1);
  if (s.Fs() > 0) list_mlp(list, pass, {s.Fs(), false, true}, true, false, shared_activates);
  if (gate) list.linear_backward_input(list.S, 1, s.C());
  list.expert_linear(ProductOf::input_gradient, rows, expert_down_split(s, ffn));
  list_expert_adapter(list, BlockProduct::expert_down, ProductOf::input_gradient, rows);
  list.over_rows("weighted_swiglu_backward", rows, ffn, 3, 2 + activates);
  if (biases) list.over_rows("expert_bias_weights", rows, bias_columns, 1, 0);
  if (!list.frozen_experts) {
    if (biases) {
      list.over_rows("expert_bias_backward", rows, bias_columns, 1, 0);
      list.over_rows("expert_bias_backward", rows, s.up_columns(ffn), 1, 0);
    }
    list.expert_linear(ProductOf::weight_gradient, rows, expert_down_split(s, ffn));
    list.expert_linear(ProductOf::weight_gradient, rows, expert_up_split(s, ffn));
  }
  if (list.c.recompute == Recompute::full) list_expert_low_rows(list, BlockProduct::expert_down, rows);
  list_expert_adapter(list, BlockProduct::expert_down, ProductOf::weight_gradient, rows);
  list.expert_linear(ProductOf::input_gradient, rows, expert_up_split(s, ffn));
  list_expert_adapter(list, BlockProduct::expert_gate_up, ProductOf::input_gradient, rows);
  list_expert_adapter(list, BlockProduct::expert_gate_up, ProductOf::weight_gradient, rows);
  list_rows_back(list, s.Fs() > 0, true);
  list_router(list, Pass::backward_input);
}

}  // namespace

void list_moe(Segments& list, Pass pass, bool recompute) {
  if (pass == Pass::forward) return list_forward(list, recompute);
  if (pass != Pass::backward_weight) list_backward_input(list, pass);
  if (pass == Pass::backward_input) return;
  if (!list.frozen) list_router(list, Pass::backward_weight);
  if (pass == Pass::backward_weight && list.spec.Fs() > 0) list_mlp(list, pass, {list.spec.Fs(), false, true});
  if (list.spec.options.shared_expert_gate && !list.frozen) list.linear_backward_weight(list.S, 1, list.spec.C());
}

}  // namespace forge

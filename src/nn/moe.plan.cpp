#include "nn/moe.plan.hpp"

namespace forge {

namespace {

// Names of a layer with experts in checkpoints.
struct ExpertNames {
  std::string prefix, shared, gate, up, down;
  std::string of(std::int64_t expert, const std::string& matrix) const {
    return prefix + "experts." + std::to_string(expert) + "." + matrix + ".weight";
  }
};

ExpertNames expert_names(const UnitBuilder& unit) {
  const TensorNames names = tensor_names(unit.spec.options.family);
  return {unit.hf_of_block() + names.moe, names.shared, names.gate, names.up, names.down};
}

std::string unit_name(std::int64_t layer) {
  return "layers." + std::to_string(layer);
}

}  // namespace

void add_moe_parameters(UnitBuilder& unit) {
  const ModelSpec& s = unit.spec;
  const ExpertNames names = expert_names(unit);
  const double std = unit.matrix_std();
  unit.add(Role::router, "router", names.prefix + "gate.weight", {s.E(), s.C()}, Initial::normal, std);
  if (s.options.shared_expert_gate)
    unit.add(Role::shared_gate, "shared.output_gate", names.prefix + "shared_expert_gate.weight", {1, s.C()},
             Initial::normal, std)
        .is_vector = true;
  if (s.Fs() == 0) return;
  const std::string prefix = names.prefix + names.shared;
  const auto add_up = [&](const char* name, const char* hf) {
    unit.add(Role::shared_up, name, prefix + hf, {s.Fs(), s.C()}, split_rows(), Initial::normal, std);
  };
  if (s.gated()) add_up("shared.gate", "gate_proj.weight");
  add_up("shared.up", "up_proj.weight");
  unit.add(Role::shared_down, "shared.down", prefix + "down_proj.weight", {s.C(), s.Fs()}, split_columns(),
           Initial::normal, unit.output_std());
}

Unit experts_unit(const ModelSpec& s, std::int64_t layer) {
  UnitBuilder unit(s, UnitKind::experts, layer, unit_name(layer));
  const ExpertNames names = expert_names(unit);
  const auto add = [&](Role role, std::int64_t e, const char* name, const std::string& hf, double std) {
    const bool up = role == Role::expert_up;
    unit.add(role, "experts." + std::to_string(e) + "." + name, names.of(e, hf),
             {up ? s.Fe() : s.C(), up ? s.C() : s.Fe()}, up ? split_rows() : split_columns(), Initial::normal, std)
        .expert = e;
  };
  for (std::int64_t e = 0; e < s.E(); ++e) {
    if (s.gated()) add(Role::expert_up, e, "gate", names.gate, unit.matrix_std());
    add(Role::expert_up, e, "up", names.up, unit.matrix_std());
    add(Role::expert_down, e, "down", names.down, unit.output_std());
  }
  return unit.finish();
}

RouterBias router_bias_of(const ModelSpec& s, std::int64_t layer) {
  const UnitBuilder unit(s, UnitKind::block, layer, unit_name(layer));
  return {layer, unit_name(layer) + ".router_bias", expert_names(unit).prefix + "gate.e_score_correction_bias"};
}

void add_moe_sends(Sends& sends, Pass pass, bool recompute) {
  const ModelSpec& s = sends.c.spec;
  const DType value = sends.c.precision.compute, sum = sends.c.precision.accumulate;
  if (s.Fs() > 0) add_mlp_sends(sends, pass, !recompute || s.options.shared_expert_gate);
  if (pass == Pass::forward) {
    add_router_sends(sends);
    add_sends_of_counts(sends);
    add_sends_out(sends, s.C(), value);
    add_sends_out(sends, 1, sum);
    if (!recompute) add_sends_back(sends, s.C(), value);
  } else if (pass == Pass::backward_input) {
    add_sends_out(sends, s.C(), value);
    add_sends_back(sends, s.C(), value);
    add_sends_back(sends, 1, sum);
  }
}

}  // namespace forge

#include "nn/mlp.plan.hpp"

namespace forge {

void add_mlp_parameters(UnitBuilder& unit) {
  const ModelSpec& s = unit.spec;
  const std::string prefix = unit.hf_of_block() + "mlp.";
  const auto add_up = [&](const char* name, const char* hf) {
    unit.add(Role::up, std::string("mlp.") + name, prefix + hf + "weight", {s.F(), s.C()}, split_rows(),
             Initial::normal, unit.matrix_std(), unit.gpt2());
    if (s.options.mlp_bias)
      unit.add(Role::up_bias, std::string("mlp.") + name + "_bias", prefix + hf + "bias", {s.F()}, split_rows(),
               Initial::zeros);
  };
  if (s.gated()) add_up("gate", "gate_proj.");
  add_up("up", unit.gpt2() ? "c_fc." : "up_proj.");
  const std::string down = prefix + unit.hf("down_proj.", "c_proj.");
  unit.add(Role::down, "mlp.down", down + "weight", {s.C(), s.F()}, split_columns(), Initial::normal, unit.output_std(),
           unit.gpt2());
  if (s.options.mlp_bias) unit.add(Role::down_bias, "mlp.down_bias", down + "bias", {s.C()}, Initial::zeros);
}

void add_mlp_sends(Sends& sends, Pass pass, bool output) {
  sends.rows(Collective::all_gather);
  if (pass == Pass::backward_input || (pass == Pass::forward && output)) sends.rows(Collective::reduce_scatter);
}

}  // namespace forge

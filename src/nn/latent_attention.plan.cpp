#include "nn/latent_attention.plan.hpp"

namespace forge {

void add_latent_parameters(UnitBuilder& unit) {
  const ModelSpec& s = unit.spec;
  const std::string prefix = unit.hf_of_block() + "self_attn.";
  const double std = unit.matrix_std();
  const bool lora = s.q_lora() > 0;
  unit.add(Role::q_up, lora ? "attention.q_up" : "attention.q", prefix + (lora ? "q_b_proj.weight" : "q_proj.weight"),
           {s.q_columns(), s.q_up_inputs()}, split_rows(s.D()), Initial::normal, std);
  unit.add(Role::kv_up, "attention.kv_up", prefix + "kv_b_proj.weight", {s.kv_up_columns(), s.kv_lora()},
           split_rows(s.options.nope_dim + s.value_dim()), Initial::normal, std);
  if (lora) {
    unit.add(Role::q_down, "attention.q_down", prefix + "q_a_proj.weight", {s.q_lora(), s.C()}, Initial::normal, std);
    unit.add(Role::q_down_norm, "attention.q_down_norm", prefix + "q_a_layernorm.weight", {s.q_lora()}, Initial::ones);
  }
  unit.add(Role::kv_down, "attention.kv_down", prefix + "kv_a_proj_with_mqa.weight", {s.kv_down_columns(), s.C()},
           Initial::normal, std);
  unit.add(Role::kv_down_norm, "attention.kv_down_norm", prefix + "kv_a_layernorm.weight", {s.kv_lora()},
           Initial::ones);
}

}  // namespace forge

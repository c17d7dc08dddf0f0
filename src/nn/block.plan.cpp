#include "nn/block.plan.hpp"

#include "nn/attention_layer.plan.hpp"
#include "nn/latent_attention.plan.hpp"
#include "nn/mlp.plan.hpp"
#include "nn/moe.plan.hpp"
#include "nn/mtp.plan.hpp"

namespace forge {

namespace {

void add_norm(UnitBuilder& unit, Role weight, Role bias, const std::string& name, const std::string& hf) {
  unit.add(weight, name, hf + ".weight", {unit.spec.C()}, Initial::ones);
  if (unit.spec.layernorm()) unit.add(bias, name + "_bias", hf + ".bias", {unit.spec.C()}, Initial::zeros);
}

// The projection behind either kind of attention.
void add_attention_output(UnitBuilder& unit) {
  const ModelSpec& s = unit.spec;
  const std::string hf = unit.hf_of_block("self_attn.o_proj", "attn.c_proj");
  unit.add(Role::attention_out, "attention.out", hf + ".weight", {s.C(), s.o_columns()}, split_columns(s.value_dim()),
           Initial::normal, unit.output_std(), unit.gpt2());
  if (s.options.attention_out_bias)
    unit.add(Role::attention_out_bias, "attention.out_bias", hf + ".bias", {s.C()}, Initial::zeros);
}

}  // namespace

Unit block_unit(const ModelSpec& s, std::int64_t layer) {
  UnitBuilder unit(s, UnitKind::block, layer, "layers." + std::to_string(layer));
  add_norm(unit, Role::norm1, Role::norm1_bias, "norm1", unit.hf_of_block("input_layernorm", "ln_1"));
  s.mla() ? add_latent_parameters(unit) : add_attention_parameters(unit);
  add_attention_output(unit);
  add_norm(unit, Role::norm2, Role::norm2_bias, "norm2", unit.hf_of_block("post_attention_layernorm", "ln_2"));
  s.is_moe(layer) ? add_moe_parameters(unit) : add_mlp_parameters(unit);
  if (layer >= s.L()) add_mtp_parameters(unit);
  return unit.finish();
}

}  // namespace forge

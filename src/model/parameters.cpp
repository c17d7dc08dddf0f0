#include "model/parameters.hpp"

#include <cmath>

#include "core/random.hpp"

namespace forge {

std::int64_t Parameter::elements() const {
  std::int64_t n = 1;
  for (const auto extent : shape) n *= extent;
  return n;
}

namespace {

// Adds tensors to a unit.
class UnitBuilder {
 public:
  UnitBuilder(UnitKind kind, std::int64_t layer, std::string name) : unit_{kind, layer, std::move(name), {}} {}

  void add(Role role, const std::string& name, const std::string& hf, std::vector<std::int64_t> shape, Initial initial,
           double std = 0, bool transposed = false) {
    unit_.parameters.push_back({unit_.name + "." + name, hf, transposed, role, std::move(shape), initial, std});
  }
  Unit finish() { return std::move(unit_); }

 private:
  Unit unit_;
};

bool is_gpt2(const ModelSpec& s) {
  return s.options.family == Family::gpt2;
}

Unit token_table_unit(const ModelSpec& s) {
  UnitBuilder unit(UnitKind::token_table, -1, "embedding");
  unit.add(Role::token_table, "tokens", is_gpt2(s) ? "transformer.wte.weight" : "model.embed_tokens.weight",
           {s.V(), s.C()}, Initial::normal, s.options.initial_std);
  return unit.finish();
}

Unit position_table_unit(const ModelSpec& s) {
  UnitBuilder unit(UnitKind::position_table, -1, "embedding");
  unit.add(Role::position_table, "positions", is_gpt2(s) ? "transformer.wpe.weight" : "model.embed_positions.weight",
           {s.options.max_positions, s.C()}, Initial::normal, s.options.initial_std);
  return unit.finish();
}

// Names of a block's tensors in checkpoints. GPT-2 fuses Q, K and V and stores matrices (in, out).
struct BlockNames {
  std::string prefix;
  bool gpt2;
  std::string of(const char* others, const char* gpt2_name) const { return prefix + (gpt2 ? gpt2_name : others); }
};

void add_matrices(UnitBuilder& unit, const ModelSpec& s, const BlockNames& n) {
  const double std = s.options.initial_std;
  const double out_std = s.options.residual_scaling ? std / std::sqrt(2.0 * static_cast<double>(s.L())) : std;
  if (n.gpt2) {
    unit.add(Role::qkv, "attention.qkv", n.prefix + "attn.c_attn.weight", {s.qkv_columns(), s.C()}, Initial::normal,
             std, true);
  } else {
    unit.add(Role::qkv, "attention.q", n.prefix + "self_attn.q_proj.weight", {s.q_columns(), s.C()}, Initial::normal,
             std);
    unit.add(Role::qkv, "attention.k", n.prefix + "self_attn.k_proj.weight", {s.kv_columns(), s.C()}, Initial::normal,
             std);
    unit.add(Role::qkv, "attention.v", n.prefix + "self_attn.v_proj.weight", {s.kv_columns(), s.C()}, Initial::normal,
             std);
  }
  unit.add(Role::attention_out, "attention.out", n.of("self_attn.o_proj.weight", "attn.c_proj.weight"),
           {s.C(), s.q_columns()}, Initial::normal, out_std, n.gpt2);
  if (s.gated())
    unit.add(Role::up, "mlp.gate", n.prefix + "mlp.gate_proj.weight", {s.F(), s.C()}, Initial::normal, std);
  unit.add(Role::up, "mlp.up", n.of("mlp.up_proj.weight", "mlp.c_fc.weight"), {s.F(), s.C()}, Initial::normal, std,
           n.gpt2);
  unit.add(Role::down, "mlp.down", n.of("mlp.down_proj.weight", "mlp.c_proj.weight"), {s.C(), s.F()}, Initial::normal,
           out_std, n.gpt2);
}

void add_norms(UnitBuilder& unit, const ModelSpec& s, const BlockNames& n) {
  unit.add(Role::norm1, "norm1", n.of("input_layernorm.weight", "ln_1.weight"), {s.C()}, Initial::ones);
  if (s.layernorm())
    unit.add(Role::norm1_bias, "norm1_bias", n.of("input_layernorm.bias", "ln_1.bias"), {s.C()}, Initial::zeros);
  unit.add(Role::norm2, "norm2", n.of("post_attention_layernorm.weight", "ln_2.weight"), {s.C()}, Initial::ones);
  if (s.layernorm())
    unit.add(Role::norm2_bias, "norm2_bias", n.of("post_attention_layernorm.bias", "ln_2.bias"), {s.C()},
             Initial::zeros);
  if (s.options.qk_norm) {
    unit.add(Role::q_norm, "attention.q_norm", n.prefix + "self_attn.q_norm.weight", {s.D()}, Initial::ones);
    unit.add(Role::k_norm, "attention.k_norm", n.prefix + "self_attn.k_norm.weight", {s.D()}, Initial::ones);
  }
}

// Vectors that tensor parallelism splits like the matrices' rows.
void add_split_biases(UnitBuilder& unit, const ModelSpec& s, const BlockNames& n) {
  if (s.options.qkv_bias && n.gpt2) {
    unit.add(Role::qkv_bias, "attention.qkv_bias", n.prefix + "attn.c_attn.bias", {s.qkv_columns()}, Initial::zeros);
  } else if (s.options.qkv_bias) {
    unit.add(Role::qkv_bias, "attention.q_bias", n.prefix + "self_attn.q_proj.bias", {s.q_columns()}, Initial::zeros);
    unit.add(Role::qkv_bias, "attention.k_bias", n.prefix + "self_attn.k_proj.bias", {s.kv_columns()}, Initial::zeros);
    unit.add(Role::qkv_bias, "attention.v_bias", n.prefix + "self_attn.v_proj.bias", {s.kv_columns()}, Initial::zeros);
  }
  if (!s.options.mlp_bias) return;
  if (s.gated()) unit.add(Role::up_bias, "mlp.gate_bias", n.prefix + "mlp.gate_proj.bias", {s.F()}, Initial::zeros);
  unit.add(Role::up_bias, "mlp.up_bias", n.of("mlp.up_proj.bias", "mlp.c_fc.bias"), {s.F()}, Initial::zeros);
}

void add_output_biases(UnitBuilder& unit, const ModelSpec& s, const BlockNames& n) {
  if (s.options.attention_out_bias)
    unit.add(Role::attention_out_bias, "attention.out_bias", n.of("self_attn.o_proj.bias", "attn.c_proj.bias"), {s.C()},
             Initial::zeros);
  if (s.options.mlp_bias)
    unit.add(Role::down_bias, "mlp.down_bias", n.of("mlp.down_proj.bias", "mlp.c_proj.bias"), {s.C()}, Initial::zeros);
}

Unit block_unit(const ModelSpec& s, std::int64_t layer) {
  const std::string number = std::to_string(layer);
  UnitBuilder unit(UnitKind::block, layer, "layers." + number);
  const BlockNames names{(is_gpt2(s) ? "transformer.h." : "model.layers.") + number + ".", is_gpt2(s)};
  add_matrices(unit, s, names);
  add_split_biases(unit, s, names);
  add_output_biases(unit, s, names);
  add_norms(unit, s, names);
  return unit.finish();
}

Unit output_unit(const ModelSpec& s) {
  UnitBuilder unit(UnitKind::output, -1, "head");
  unit.add(Role::output, "output", "lm_head.weight", {s.V(), s.C()}, Initial::normal, s.options.initial_std);
  return unit.finish();
}

Unit final_norm_unit(const ModelSpec& s) {
  UnitBuilder unit(UnitKind::final_norm, -1, "head");
  unit.add(Role::final_norm, "norm", is_gpt2(s) ? "transformer.ln_f.weight" : "model.norm.weight", {s.C()},
           Initial::ones);
  if (s.layernorm())
    unit.add(Role::final_norm_bias, "norm_bias", is_gpt2(s) ? "transformer.ln_f.bias" : "model.norm.bias", {s.C()},
             Initial::zeros);
  return unit.finish();
}

}  // namespace

std::vector<Unit> parameter_units(const ModelSpec& spec) {
  std::vector<Unit> units;
  units.push_back(token_table_unit(spec));
  if (!spec.rope()) units.push_back(position_table_unit(spec));
  for (std::int64_t layer = 0; layer < spec.L(); ++layer) units.push_back(block_unit(spec, layer));
  if (!spec.options.tied_embeddings) units.push_back(output_unit(spec));
  units.push_back(final_norm_unit(spec));
  return units;
}

std::int64_t parameter_count(const std::vector<Unit>& units) {
  std::int64_t n = 0;
  for (const auto& unit : units)
    for (const auto& p : unit.parameters) n += p.elements();
  return n;
}

double initial_value(std::uint64_t seed, const Parameter& parameter, std::int64_t element) {
  switch (parameter.initial) {
    case Initial::zeros:
      return 0;
    case Initial::ones:
      return 1;
    case Initial::normal:
      return parameter.std * normal(random_key(seed, Purpose::initial_values, hash_of(parameter.name)),
                                    static_cast<std::uint64_t>(element));
  }
  return 0;
}

}  // namespace forge

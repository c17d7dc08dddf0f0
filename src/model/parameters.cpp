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

  Parameter& add(Role role, const std::string& name, const std::string& hf, std::vector<std::int64_t> shape,
                 std::vector<Split> split, Initial initial, double std = 0, bool transposed = false) {
    const bool is_vector = shape.size() == 1;
    unit_.parameters.push_back({unit_.name + "." + name, hf, transposed, role, std::move(shape), std::move(split), -1,
                                is_vector, initial, std});
    return unit_.parameters.back();
  }
  // What every tensor-parallel rank has whole.
  Parameter& add(Role role, const std::string& name, const std::string& hf, std::vector<std::int64_t> shape,
                 Initial initial, double std = 0) {
    return add(role, name, hf, std::move(shape), {}, initial, std);
  }
  Unit finish() { return std::move(unit_); }

 private:
  Unit unit_;
};

std::vector<Split> rows(std::int64_t granule = 1) {
  return {{0, granule}};
}
std::vector<Split> columns(std::int64_t granule = 1) {
  return {{1, granule}};
}
// Key and value heads: fewer of them than tp ranks are copied.
std::vector<Split> kv_heads(const ModelSpec& s) {
  return {{0, s.D(), true}};
}
// One tensor of q's rows, then k's, then v's.
std::vector<Split> fused_heads(const ModelSpec& s) {
  const std::int64_t q = s.q_columns(), kv = s.kv_columns();
  return {{0, s.D(), false, 0, q}, {0, s.D(), true, q, kv}, {0, s.D(), true, q + kv, kv}};
}

bool is_gpt2(const ModelSpec& s) {
  return tensor_names(s.options.family).gpt2;
}

Unit token_table_unit(const ModelSpec& s) {
  UnitBuilder unit(UnitKind::token_table, -1, "embedding");
  unit.add(Role::token_table, "tokens", is_gpt2(s) ? "transformer.wte.weight" : "model.embed_tokens.weight",
           {s.V(), s.C()}, rows(), Initial::normal, s.options.initial_std);
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

BlockNames block_names(const ModelSpec& s, std::int64_t layer) {
  return {(is_gpt2(s) ? "transformer.h." : "model.layers.") + std::to_string(layer) + ".", is_gpt2(s)};
}

// Those of a layer with experts.
struct ExpertNames {
  std::string prefix, shared, gate, up, down;
  std::string of(std::int64_t expert, const std::string& matrix) const {
    return prefix + "experts." + std::to_string(expert) + "." + matrix + ".weight";
  }
};

ExpertNames expert_names(const ModelSpec& s, std::int64_t layer) {
  const TensorNames names = tensor_names(s.options.family);
  return {block_names(s, layer).prefix + names.moe, names.shared, names.gate, names.up, names.down};
}

// Standard deviations of matrices, and of those that add to the residual stream.
double matrix_std(const ModelSpec& s) {
  return s.options.initial_std;
}
double output_std(const ModelSpec& s) {
  const double std = s.options.initial_std;
  return s.options.residual_scaling ? std / std::sqrt(2.0 * static_cast<double>(s.L())) : std;
}

void add_attention(UnitBuilder& unit, const ModelSpec& s, const BlockNames& n) {
  const double std = matrix_std(s);
  if (n.gpt2) {
    unit.add(Role::qkv, "attention.qkv", n.prefix + "attn.c_attn.weight", {s.qkv_columns(), s.C()}, fused_heads(s),
             Initial::normal, std, true);
  } else if (s.mla()) {
    unit.add(Role::q_up, s.q_lora() > 0 ? "attention.q_up" : "attention.q",
             n.prefix + (s.q_lora() > 0 ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight"),
             {s.q_columns(), s.q_up_inputs()}, rows(s.D()), Initial::normal, std);
    unit.add(Role::kv_up, "attention.kv_up", n.prefix + "self_attn.kv_b_proj.weight", {s.kv_up_columns(), s.kv_lora()},
             rows(s.options.nope_dim + s.value_dim()), Initial::normal, std);
  } else {
    unit.add(Role::qkv, "attention.q", n.prefix + "self_attn.q_proj.weight", {s.q_columns(), s.C()}, rows(s.D()),
             Initial::normal, std);
    unit.add(Role::qkv, "attention.k", n.prefix + "self_attn.k_proj.weight", {s.kv_columns(), s.C()}, kv_heads(s),
             Initial::normal, std);
    unit.add(Role::qkv, "attention.v", n.prefix + "self_attn.v_proj.weight", {s.kv_columns(), s.C()}, kv_heads(s),
             Initial::normal, std);
  }
  unit.add(Role::attention_out, "attention.out", n.of("self_attn.o_proj.weight", "attn.c_proj.weight"),
           {s.C(), s.o_columns()}, columns(s.value_dim()), Initial::normal, output_std(s), n.gpt2);
}

void add_feed_forward(UnitBuilder& unit, const ModelSpec& s, const BlockNames& n) {
  const double std = matrix_std(s);
  if (s.gated())
    unit.add(Role::up, "mlp.gate", n.prefix + "mlp.gate_proj.weight", {s.F(), s.C()}, rows(), Initial::normal, std);
  unit.add(Role::up, "mlp.up", n.of("mlp.up_proj.weight", "mlp.c_fc.weight"), {s.F(), s.C()}, rows(), Initial::normal,
           std, n.gpt2);
  unit.add(Role::down, "mlp.down", n.of("mlp.down_proj.weight", "mlp.c_proj.weight"), {s.C(), s.F()}, columns(),
           Initial::normal, output_std(s), n.gpt2);
}

void add_shared_experts(UnitBuilder& unit, const ModelSpec& s, const ExpertNames& n) {
  if (s.Fs() == 0) return;
  const std::string prefix = n.prefix + n.shared;
  if (s.gated())
    unit.add(Role::shared_up, "shared.gate", prefix + "gate_proj.weight", {s.Fs(), s.C()}, rows(), Initial::normal,
             matrix_std(s));
  unit.add(Role::shared_up, "shared.up", prefix + "up_proj.weight", {s.Fs(), s.C()}, rows(), Initial::normal,
           matrix_std(s));
  unit.add(Role::shared_down, "shared.down", prefix + "down_proj.weight", {s.C(), s.Fs()}, columns(), Initial::normal,
           output_std(s));
}

// Matrices that every tensor-parallel rank has whole.
void add_replicated_matrices(UnitBuilder& unit, const ModelSpec& s, std::int64_t layer, const BlockNames& n) {
  const double std = matrix_std(s);
  if (s.mla() && s.q_lora() > 0)
    unit.add(Role::q_down, "attention.q_down", n.prefix + "self_attn.q_a_proj.weight", {s.q_lora(), s.C()},
             Initial::normal, std);
  if (s.mla())
    unit.add(Role::kv_down, "attention.kv_down", n.prefix + "self_attn.kv_a_proj_with_mqa.weight",
             {s.kv_down_columns(), s.C()}, Initial::normal, std);
  if (s.is_moe(layer))
    unit.add(Role::router, "router", expert_names(s, layer).prefix + "gate.weight", {s.E(), s.C()}, Initial::normal,
             std);
  if (layer >= s.L())
    unit.add(Role::mtp_projection, "mtp.projection", n.prefix + "eh_proj.weight", {s.C(), 2 * s.C()}, Initial::normal,
             std);
}

void add_output_biases(UnitBuilder& unit, const ModelSpec& s, std::int64_t layer, const BlockNames& n) {
  if (s.options.attention_out_bias)
    unit.add(Role::attention_out_bias, "attention.out_bias", n.of("self_attn.o_proj.bias", "attn.c_proj.bias"), {s.C()},
             Initial::zeros);
  if (s.options.mlp_bias && !s.is_moe(layer))
    unit.add(Role::down_bias, "mlp.down_bias", n.of("mlp.down_proj.bias", "mlp.c_proj.bias"), {s.C()}, Initial::zeros);
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
  if (s.mla() && s.q_lora() > 0)
    unit.add(Role::q_down_norm, "attention.q_down_norm", n.prefix + "self_attn.q_a_layernorm.weight", {s.q_lora()},
             Initial::ones);
  if (s.mla())
    unit.add(Role::kv_down_norm, "attention.kv_down_norm", n.prefix + "self_attn.kv_a_layernorm.weight", {s.kv_lora()},
             Initial::ones);
}

// The rest of what every tensor-parallel rank has whole.
void add_expert_vectors(UnitBuilder& unit, const ModelSpec& s, std::int64_t layer, const BlockNames& n) {
  if (s.is_moe(layer) && s.options.shared_expert_gate)
    unit.add(Role::shared_gate, "shared.output_gate", expert_names(s, layer).prefix + "shared_expert_gate.weight",
             {1, s.C()}, Initial::normal, matrix_std(s))
        .is_vector = true;
  if (layer < s.L()) return;
  unit.add(Role::mtp_embedding_norm, "mtp.embedding_norm", n.prefix + "enorm.weight", {s.C()}, Initial::ones);
  unit.add(Role::mtp_hidden_norm, "mtp.hidden_norm", n.prefix + "hnorm.weight", {s.C()}, Initial::ones);
  unit.add(Role::mtp_norm, "mtp.norm", n.prefix + "shared_head.norm.weight", {s.C()}, Initial::ones);
}

// Vectors that tensor parallelism splits like the matrices' rows.
void add_split_biases(UnitBuilder& unit, const ModelSpec& s, std::int64_t layer, const BlockNames& n) {
  if (s.options.qkv_bias && n.gpt2) {
    unit.add(Role::qkv_bias, "attention.qkv_bias", n.prefix + "attn.c_attn.bias", {s.qkv_columns()}, fused_heads(s),
             Initial::zeros);
  } else if (s.options.qkv_bias) {
    unit.add(Role::qkv_bias, "attention.q_bias", n.prefix + "self_attn.q_proj.bias", {s.q_columns()}, rows(s.D()),
             Initial::zeros);
    unit.add(Role::qkv_bias, "attention.k_bias", n.prefix + "self_attn.k_proj.bias", {s.kv_columns()}, kv_heads(s),
             Initial::zeros);
    unit.add(Role::qkv_bias, "attention.v_bias", n.prefix + "self_attn.v_proj.bias", {s.kv_columns()}, kv_heads(s),
             Initial::zeros);
  }
  if (!s.options.mlp_bias || s.is_moe(layer)) return;
  if (s.gated())
    unit.add(Role::up_bias, "mlp.gate_bias", n.prefix + "mlp.gate_proj.bias", {s.F()}, rows(), Initial::zeros);
  unit.add(Role::up_bias, "mlp.up_bias", n.of("mlp.up_proj.bias", "mlp.c_fc.bias"), {s.F()}, rows(), Initial::zeros);
}

Unit block_unit(const ModelSpec& s, std::int64_t layer) {
  UnitBuilder unit(UnitKind::block, layer, "layers." + std::to_string(layer));
  const BlockNames names = block_names(s, layer);
  add_attention(unit, s, names);
  if (s.is_moe(layer))
    add_shared_experts(unit, s, expert_names(s, layer));
  else
    add_feed_forward(unit, s, names);
  add_replicated_matrices(unit, s, layer, names);
  add_output_biases(unit, s, layer, names);
  add_norms(unit, s, names);
  add_expert_vectors(unit, s, layer, names);
  add_split_biases(unit, s, layer, names);
  return unit.finish();
}

Unit experts_unit(const ModelSpec& s, std::int64_t layer) {
  UnitBuilder unit(UnitKind::experts, layer, "layers." + std::to_string(layer));
  const ExpertNames names = expert_names(s, layer);
  const auto add = [&](Role role, std::int64_t e, const char* name, const std::string& hf, double std) {
    const bool up = role == Role::expert_up;
    unit.add(role, "experts." + std::to_string(e) + "." + name, names.of(e, hf),
             {up ? s.Fe() : s.C(), up ? s.C() : s.Fe()}, up ? rows() : columns(), Initial::normal, std)
        .expert = e;
  };
  for (std::int64_t e = 0; e < s.E(); ++e) {
    if (s.gated()) add(Role::expert_up, e, "gate", names.gate, matrix_std(s));
    add(Role::expert_up, e, "up", names.up, matrix_std(s));
  }
  for (std::int64_t e = 0; e < s.E(); ++e) add(Role::expert_down, e, "down", names.down, output_std(s));
  return unit.finish();
}

Unit output_unit(const ModelSpec& s) {
  UnitBuilder unit(UnitKind::output, -1, "head");
  unit.add(Role::output, "output", "lm_head.weight", {s.V(), s.C()}, rows(), Initial::normal, s.options.initial_std);
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
  for (std::int64_t layer = 0; layer < spec.L() + spec.options.mtp_depth; ++layer) {
    units.push_back(block_unit(spec, layer));
    if (spec.is_moe(layer)) units.push_back(experts_unit(spec, layer));
  }
  if (!spec.options.tied_embeddings) units.push_back(output_unit(spec));
  units.push_back(final_norm_unit(spec));
  return units;
}

std::vector<RouterBias> router_biases(const ModelSpec& spec) {
  std::vector<RouterBias> biases;
  if (!spec.options.router_bias) return biases;
  for (std::int64_t layer = 0; layer < spec.L() + spec.options.mtp_depth; ++layer)
    if (spec.is_moe(layer))
      biases.push_back({layer, "layers." + std::to_string(layer) + ".router_bias",
                        expert_names(spec, layer).prefix + "gate.e_score_correction_bias"});
  return biases;
}

std::int64_t parameter_count(const std::vector<Unit>& units) {
  std::int64_t n = 0;
  for (const auto& unit : units)
    for (const auto& p : unit.parameters) n += p.elements();
  return n;
}

std::int64_t active_parameter_count(const ModelSpec& spec) {
  std::int64_t n = 0;
  for (const auto& unit : parameter_units(spec)) {
    if (unit.layer >= spec.L() || unit.kind == UnitKind::position_table) continue;
    if (unit.kind == UnitKind::token_table && !spec.options.tied_embeddings) continue;
    const std::int64_t elements = parameter_count({unit});
    n += unit.kind == UnitKind::experts ? elements / spec.E() * spec.experts_per_token() : elements;
  }
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

std::string_view name_of(UnitKind kind) {
  constexpr std::string_view names[] = {"token_table", "position_table", "block", "experts", "output", "final_norm"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace forge

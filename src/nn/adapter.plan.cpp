#include "nn/adapter.plan.hpp"

#include <algorithm>
#include <cmath>

#include "config/family.hpp"
#include "nn/delta_tensors.plan.hpp"

namespace forge {

namespace {

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

// The module of a fused tensor's name in config/family.hpp, which ends with a dot.
std::string_view module_of(std::string_view name) {
  return name.substr(0, name.size() - 1);
}

// Those of a feed-forward layer, of the shared experts or of each expert.
AdaptedTensors mlp_tensors(const ModelSpec& s, const AdaptedProduct& of) {
  const TensorNames& names = tensor_names(s.options.family);
  const bool is_down = of.product == BlockProduct::down || of.product == BlockProduct::expert_down;
  const bool of_expert = of.product == BlockProduct::expert_gate_up || of.product == BlockProduct::expert_down;
  const std::int64_t C = s.C(), F = of_expert ? s.Fe() : of.shared ? s.Fs() : s.F();
  if (F == 0 || (of_expert && !names.adapted_experts)) return {};
  const auto tensor = [&](const std::array<std::string_view, 3>& own, std::string_view hf, std::string_view expert,
                          std::int64_t rows, std::int64_t columns, const Splits& a, const Splits& b) {
    AdaptedTensor t{of_expert ? own[0] : of.shared ? own[1] : own[2], {}, rows, columns, a, b};
    if (!of_expert) t.hf.push_back(of.shared ? names.moe : "mlp.");
    if (of.shared) t.hf.push_back(names.shared);
    t.hf.push_back(of_expert ? expert : hf);
    return t;
  };
  if (is_down)
    return {tensor({"down", "shared.down", "mlp.down"}, names.gpt2 ? "c_proj" : "down_proj", names.down, C, F,
                   split_columns(), Splits{})};
  if (const std::string_view fused = names.gate_up; s.gated() && !fused.empty())
    return {tensor({"", "", "mlp.gate_up"}, module_of(fused), "", 2 * F, C, {},
                   {{0, 1, false, 0, F}, {0, 1, false, F, F}})};
  const AdaptedTensor up =
      tensor({"up", "shared.up", "mlp.up"}, names.gpt2 ? "c_fc" : "up_proj", names.up, F, C, {}, split_rows());
  if (!s.gated()) return {up};
  return {tensor({"gate", "shared.gate", "mlp.gate"}, "gate_proj", names.gate, F, C, {}, split_rows()), up};
}

// Those of gated DeltaNet: its projections and its output's.
AdaptedTensors adapted_of_delta(const ModelSpec& s, const AdaptedProduct& of) {
  if (s.options.full_attention_interval == 0) return {};
  const ModelDeck& o = s.options;
  if (of.product == BlockProduct::attention_out)
    return {
        {"attention.out", {"linear_attn.out_proj"}, s.C(), s.linear_values(), split_columns(o.linear_value_dim), {}}};
  AdaptedTensors tensors;
  for (const DeltaTensor& t : delta_tensors(s)) {
    AdaptedTensor tensor{t.name, {"linear_attn.", t.hf}, t.rows, s.C(), {}, t.split};
    tensor.groups = t.groups;
    tensors.push_back(tensor);
  }
  return tensors;
}

AdaptedTensors all_tensors_of(const ModelSpec& s, const AdaptedProduct& of) {
  if (of.linear) return adapted_of_delta(s, of);
  const bool gpt2 = tensor_names(s.options.family).gpt2;
  const char* const fused = tensor_names(s.options.family).qkv;
  const std::int64_t C = s.C(), D = s.D(), q = s.q_columns(), kv = s.kv_columns();
  const bool lora = s.q_lora() > 0;
  switch (of.product) {
    case BlockProduct::qkv:
      if (s.mla()) return {};
      if (*fused != 0)
        return {{"attention.qkv",
                 {module_of(fused)},
                 s.qkv_columns(),
                 C,
                 {},
                 {{0, D, false, 0, q}, {0, D, true, q, kv}, {0, D, true, q + kv, kv}}}};
      return {{"attention.q", {"self_attn.q_proj"}, s.q_rows(), C, {}, split_rows(s.q_rows() / s.H())},
              {"attention.k", {"self_attn.k_proj"}, kv, C, {}, {{0, D, true}}},
              {"attention.v", {"self_attn.v_proj"}, kv, C, {}, {{0, D, true}}}};
    case BlockProduct::q_down:
      if (!s.mla() || !lora) return {};
      return {{"attention.q_down", {"self_attn.q_a_proj"}, s.q_lora(), C, {}, {}}};
    case BlockProduct::kv_down:
      if (!s.mla()) return {};
      return {{"attention.kv_down", {"self_attn.kv_a_proj_with_mqa"}, s.kv_down_columns(), C, {}, {}}};
    case BlockProduct::q_up:
      if (!s.mla()) return {};
      return {{lora ? "attention.q_up" : "attention.q",
               {lora ? "self_attn.q_b_proj" : "self_attn.q_proj"},
               q,
               s.q_up_inputs(),
               {},
               split_rows(D)}};
    case BlockProduct::kv_up:
      if (!s.mla()) return {};
      return {{"attention.kv_up",
               {"self_attn.kv_b_proj"},
               s.kv_up_columns(),
               s.kv_lora(),
               {},
               split_rows(s.options.nope_dim + s.value_dim())}};
    case BlockProduct::attention_out:
      return {{"attention.out",
               {gpt2 ? "attn.c_proj" : "self_attn.o_proj"},
               C,
               s.o_columns(),
               split_columns(s.value_dim()),
               Splits{}}};
    case BlockProduct::gate_up:
    case BlockProduct::down:
    case BlockProduct::expert_gate_up:
    case BlockProduct::expert_down:
      return mlp_tensors(s, of);
    default:
      return {};
  }
}

}  // namespace

NameParts with_end(const ShortList<std::string_view, 3>& parts, std::string_view end) {
  NameParts name;
  for (const std::string_view part : parts) name.push_back(part);
  name.push_back(end);
  return name;
}

AdaptedTensors tensors_of(const ModelSpec& s, AdaptedProduct product) {
  AdaptedTensors tensors = all_tensors_of(s, product);
  const AdapterDeck& adapter = s.options.adapter;
  const std::vector<std::string>& targets = adapter.targets;
  for (AdaptedTensor& t : tensors)
    t.adapted = adapter.on() &&
                (targets.empty() || std::find(targets.begin(), targets.end(), last_part(t.hf.back())) != targets.end());
  return tensors;
}

std::int64_t low_columns(const ModelSpec& s, AdaptedProduct product) {
  if (!s.options.adapter.on()) return 0;
  std::int64_t count = 0;
  for (const AdaptedTensor& t : tensors_of(s, product)) count += t.adapted;
  return count * s.options.adapter.rank;
}

std::array<AdaptedProduct, 8> adapted_products(const ModelSpec& s, std::int64_t layer) {
  using P = BlockProduct;
  const bool shared = s.is_moe(layer), linear = s.linear(layer);
  return {linear ? delta_in : P::qkv,
          P::q_down,
          P::kv_down,
          P::q_up,
          P::kv_up,
          linear ? delta_out : P::attention_out,
          {P::gate_up, shared},
          {P::down, shared}};
}

bool has_adapters(const ModelSpec& s, std::int64_t layer) {
  const auto products = adapted_products(s, layer);
  return std::any_of(products.begin(), products.end(), [&](const AdaptedProduct& p) { return low_columns(s, p) > 0; });
}

bool has_expert_adapters(const ModelSpec& s) {
  return s.E() > 0 &&
         (low_columns(s, BlockProduct::expert_gate_up) > 0 || low_columns(s, BlockProduct::expert_down) > 0);
}

double adapter_scale(const AdapterDeck& adapter) {
  const auto rank = static_cast<double>(adapter.rank);
  return adapter.alpha / (adapter.rank_stabilised ? std::sqrt(rank) : rank);
}

// A as PEFT's: uniform within 1 / sqrt(K), which PyTorch calls Kaiming's with a = sqrt(5); B = 0.
template <class P>
void LowRank<P>::list(ParameterLister& l, AdaptedProduct product) {
  const std::int64_t columns = low_columns(l.spec, product), r = l.spec.options.adapter.rank;
  if (columns == 0) return;
  const AdaptedTensors tensors = tensors_of(l.spec, product);
  l.start(a, {{columns, tensors[0].columns}});
  for (const AdaptedTensor& t : tensors)
    if (t.adapted)
      l.tensor({{t.name, ".lora_a"},
                with_end(t.hf, ".lora_A.weight"),
                {r, t.columns},
                t.a_split,
                Initial::uniform,
                1 / std::sqrt(static_cast<double>(t.columns))});
  std::size_t i = 0;
  for (const AdaptedTensor& t : tensors)
    if (t.adapted)
      l.add(b[i++], {.name = {t.name, ".lora_b"},
                     .hf = with_end(t.hf, ".lora_B.weight"),
                     .shape = {t.rows, r},
                     .split = t.b_split,
                     .groups = t.groups});
}

FORGE_INSTANTIATE_PARAMETERS(LowRank);

AdapterInput input_of(const ModelSpec& s, BlockProduct product) {
  switch (product) {
    case BlockProduct::q_up:
      return s.q_lora() > 0 ? AdapterInput::query_latent : AdapterInput::attention;
    case BlockProduct::kv_up:
      return AdapterInput::key_latent;
    case BlockProduct::attention_out:
      return AdapterInput::attention_out;
    case BlockProduct::gate_up:
      return AdapterInput::feed_forward;
    case BlockProduct::down:
      return AdapterInput::activation;
    default:
      return AdapterInput::attention;
  }
}

template <class T>
void DroppedRows<T>::list(BufferLister& l, bool trains) {
  if (!trains || l.spec.options.adapter.dropout == 0) return;
  std::int64_t most = 0;
  for (std::int64_t layer = 0; layer < l.spec.L(); ++layer)
    for (const AdaptedProduct& product : adapted_products(l.spec, layer))
      if (low_columns(l.spec, product) > 0)
        most = std::max(most, rows_of(l, product.product) * tensors_of(l.spec, product)[0].columns);
  if (most > 0) l.add(values, "dropped inputs of adapters", most, 1);
}

FORGE_INSTANTIATE_CLASS(DroppedRows);

void list_low_rows(Segments& list, AdaptedProduct product) {
  const std::int64_t columns = low_columns(list.spec, product);
  if (columns == 0) return;
  const std::int64_t R = rows_of(list, product.product), K = tensors_of(list.spec, product)[0].columns;
  if (list.spec.options.adapter.dropout > 0) list.over_rows("dropout", R, K, 1, 1);
  list.linear(R, columns, K);
}

void list_adapter(Segments& list, AdaptedProduct product, ProductOf of) {
  const std::int64_t columns = low_columns(list.spec, product), r = list.spec.options.adapter.rank,
                     R = rows_of(list, product.product);
  if (columns == 0) return;
  const AdaptedTensors tensors = tensors_of(list.spec, product);
  const std::int64_t K = tensors[0].columns;
  if (of == ProductOf::output) list_low_rows(list, product);
  for (const AdaptedTensor& t : tensors) {
    if (!t.adapted) continue;
    if (of == ProductOf::output) list.linear(R, t.rows, r);
    if (of == ProductOf::input_gradient) list.linear_backward_input(R, t.rows, r);
    if (of == ProductOf::weight_gradient) list.linear_backward_weight(R, t.rows, r);
  }
  const bool drops = list.spec.options.adapter.dropout > 0;
  if (of == ProductOf::input_gradient) {
    list.linear_backward_input(R, columns, K);
    if (drops) list.over_rows("residual_add", R, K, 2, 1);
  }
  if (of == ProductOf::weight_gradient) {
    if (drops) list.over_rows("dropout", R, K, 1, 1);
    list.linear_backward_weight(R, columns, K);
  }
}

}  // namespace forge

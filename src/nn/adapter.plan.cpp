#include "nn/adapter.plan.hpp"

#include <algorithm>
#include <cmath>

#include "config/family.hpp"

namespace forge {

namespace {

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

AdaptedTensors all_tensors_of(const ModelSpec& s, BlockProduct product) {
  const bool gpt2 = tensor_names(s.options.family).gpt2;
  const std::int64_t C = s.C(), D = s.D(), q = s.q_columns(), kv = s.kv_columns(), F = s.F();
  const bool lora = s.q_lora() > 0;
  switch (product) {
    case BlockProduct::qkv:
      if (s.mla()) return {};
      if (gpt2)
        return {{"attention.qkv",
                 "attn.c_attn",
                 s.qkv_columns(),
                 C,
                 {},
                 {{0, D, false, 0, q}, {0, D, true, q, kv}, {0, D, true, q + kv, kv}}}};
      return {{"attention.q", "self_attn.q_proj", q, C, {}, split_rows(D)},
              {"attention.k", "self_attn.k_proj", kv, C, {}, {{0, D, true}}},
              {"attention.v", "self_attn.v_proj", kv, C, {}, {{0, D, true}}}};
    case BlockProduct::q_down:
      if (!s.mla() || !lora) return {};
      return {{"attention.q_down", "self_attn.q_a_proj", s.q_lora(), C, {}, {}}};
    case BlockProduct::kv_down:
      if (!s.mla()) return {};
      return {{"attention.kv_down", "self_attn.kv_a_proj_with_mqa", s.kv_down_columns(), C, {}, {}}};
    case BlockProduct::q_up:
      if (!s.mla()) return {};
      return {{lora ? "attention.q_up" : "attention.q",
               lora ? "self_attn.q_b_proj" : "self_attn.q_proj",
               q,
               s.q_up_inputs(),
               {},
               split_rows(D)}};
    case BlockProduct::kv_up:
      if (!s.mla()) return {};
      return {{"attention.kv_up",
               "self_attn.kv_b_proj",
               s.kv_up_columns(),
               s.kv_lora(),
               {},
               split_rows(s.options.nope_dim + s.value_dim())}};
    case BlockProduct::attention_out:
      return {{"attention.out", gpt2 ? "attn.c_proj" : "self_attn.o_proj", C, s.o_columns(),
               split_columns(s.value_dim()), Splits{}}};
    case BlockProduct::gate_up:
      if (s.gated())
        return {{"mlp.gate", "mlp.gate_proj", F, C, {}, split_rows()},
                {"mlp.up", "mlp.up_proj", F, C, {}, split_rows()}};
      return {{"mlp.up", gpt2 ? "mlp.c_fc" : "mlp.up_proj", F, C, {}, split_rows()}};
    case BlockProduct::down:
      return {{"mlp.down", gpt2 ? "mlp.c_proj" : "mlp.down_proj", C, F, split_columns(), Splits{}}};
    default:
      return {};
  }
}

}  // namespace

AdaptedTensors tensors_of(const ModelSpec& s, BlockProduct product) {
  AdaptedTensors tensors = all_tensors_of(s, product);
  const AdapterDeck& adapter = s.options.adapter;
  const std::vector<std::string>& targets = adapter.targets;
  for (AdaptedTensor& t : tensors)
    t.adapted = adapter.on() &&
                (targets.empty() || std::find(targets.begin(), targets.end(), last_part(t.hf)) != targets.end());
  return tensors;
}

std::int64_t low_columns(const ModelSpec& s, BlockProduct product) {
  if (!s.options.adapter.on()) return 0;
  std::int64_t count = 0;
  for (const AdaptedTensor& t : tensors_of(s, product)) count += t.adapted;
  return count * s.options.adapter.rank;
}

bool has_adapters(const ModelSpec& s) {
  return std::any_of(adapted_products.begin(), adapted_products.end(),
                     [&](BlockProduct product) { return low_columns(s, product) > 0; });
}

double adapter_scale(const AdapterDeck& adapter) {
  const auto rank = static_cast<double>(adapter.rank);
  return adapter.alpha / (adapter.rank_stabilised ? std::sqrt(rank) : rank);
}

// A as PEFT's: uniform within 1 / sqrt(K), which PyTorch calls Kaiming's with a = sqrt(5); B = 0.
template <class P>
void LowRank<P>::list(ParameterLister& l, BlockProduct product) {
  const std::int64_t columns = low_columns(l.spec, product), r = l.spec.options.adapter.rank;
  if (columns == 0) return;
  const AdaptedTensors tensors = tensors_of(l.spec, product);
  l.start(a, {{columns, tensors[0].columns}});
  for (const AdaptedTensor& t : tensors)
    if (t.adapted)
      l.tensor({{t.name, ".lora_a"},
                {t.hf, ".lora_A.weight"},
                {r, t.columns},
                t.a_split,
                Initial::uniform,
                1 / std::sqrt(static_cast<double>(t.columns))});
  std::size_t i = 0;
  for (const AdaptedTensor& t : tensors)
    if (t.adapted) l.add(b[i++], {{t.name, ".lora_b"}, {t.hf, ".lora_B.weight"}, {t.rows, r}, t.b_split});
}

#define FORGE_INSTANTIATE(T)        \
  template struct LowRank<const T>; \
  template struct LowRank<T>;
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

void list_low_rows(Segments& list, BlockProduct product) {
  const std::int64_t columns = low_columns(list.spec, product);
  if (columns > 0) list.linear(rows_of(list, product), columns, tensors_of(list.spec, product)[0].columns);
}

void list_adapter(Segments& list, BlockProduct product, ProductOf of) {
  const std::int64_t columns = low_columns(list.spec, product), r = list.spec.options.adapter.rank,
                     R = rows_of(list, product);
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
  if (of == ProductOf::input_gradient) list.linear_backward_input(R, columns, K);
  if (of == ProductOf::weight_gradient) list.linear_backward_weight(R, columns, K);
}

}  // namespace forge

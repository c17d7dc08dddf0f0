#include "nn/latent_attention.plan.hpp"

namespace forge {

template <class P>
void LatentParameters<P>::list(ParameterLister& l) {
  const ModelSpec& s = l.spec;
  const bool lora = s.q_lora() > 0;
  const auto matrix = [&](View<P, 2>& member, std::string_view name, std::string_view hf, std::int64_t rows,
                          std::int64_t columns, const Splits& split) {
    l.add(member, {{"attention.", name}, {"self_attn.", hf}, {rows, columns}, split, Initial::normal, l.matrix_std()});
  };
  const auto norm = [&](View<P, 1>& member, std::string_view name, std::string_view hf, std::int64_t columns) {
    l.add(member, {{"attention.", name}, {"self_attn.", hf}, {columns}, {}, Initial::ones});
  };
  this->list_norm(l);
  matrix(q_up, lora ? "q_up" : "q", lora ? "q_b_proj.weight" : "q_proj.weight", s.q_columns(), s.q_up_inputs(),
         split_rows(s.D()));
  matrix(kv_up, "kv_up", "kv_b_proj.weight", s.kv_up_columns(), s.kv_lora(),
         split_rows(s.options.nope_dim + s.value_dim()));
  if (lora) {
    matrix(q_down, "q_down", "q_a_proj.weight", s.q_lora(), s.C(), {});
    norm(q_down_norm, "q_down_norm", "q_a_layernorm.weight", s.q_lora());
  }
  matrix(kv_down, "kv_down", "kv_a_proj_with_mqa.weight", s.kv_down_columns(), s.C(), {});
  norm(kv_down_norm, "kv_down_norm", "kv_a_layernorm.weight", s.kv_lora());
  this->list_output(l);
}

#define FORGE_INSTANTIATE(T)                 \
  template struct LatentParameters<const T>; \
  template struct LatentParameters<T>;
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge

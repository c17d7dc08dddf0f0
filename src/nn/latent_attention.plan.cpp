#include "nn/latent_attention.plan.hpp"

namespace forge {

namespace {

constexpr Reader B = Reader::backward_input, W = Reader::backward_weight;

}  // namespace

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

template <class T>
void LatentBuffers<T>::list(BufferLister& l) {
  const ModelSpec& s = l.spec;
  this->list_norm(l);
  if (s.q_lora() > 0) {
    this->list_n1(l);
    l.save(q_down, "q latent", l.S, s.q_lora(), B);
    l.save(q_down_rstd, "q latent rstd", l.S, 1, B);
  }
  l.save(kv_down, "kv latent, rope key", l.S, s.kv_down_columns(), B);
  l.save(kv_down_rstd, "kv latent rstd", l.S, 1, B);
  l.recompute(latents, "inputs of the up-projections", l.S, s.latent_columns(), W);
  l.save(q, "q", l.R, s.q_columns(), B);
  l.save(k, "k", l.R, s.kv_columns(), B);
  l.save(v, "v", l.R, s.v_columns(), B);
  this->list_outputs(l);
}

template <class T>
void LatentBuffers<T>::list_gradients(BufferLister& l) {
  this->list_attend_gradients(l);
  l.add(d_q, "gradient of q", l.R, l.spec.q_columns(), W);
  l.add(d_kv_up, "gradient of keys and values, by head", l.R, l.spec.kv_up_columns(), W);
  l.add(d_latents, "gradient of the latents", l.S, l.spec.latent_columns(), W);
}

template <class T>
void LatentForward<T>::list(BufferLister& l) {
  l.add(kv_up, "keys and values, by head", l.R, l.spec.kv_up_columns());
  all.list(l);
}

template <class T>
void LatentBackward<T>::list(BufferLister& l) {
  const ModelSpec& s = l.spec;
  this->list_attend(l);
  l.add(d_k, "gradient of k", l.R, s.kv_columns());
  l.add(d_v, "gradient of v", l.R, s.v_columns());
  this->rows.list_partial(l, std::max({s.C(), s.q_lora(), s.kv_lora()}));
  if (s.q_lora() > 0) this->list_d_n1(l);
  all.list(l);
}

template struct LatentBuffers<double>;
template struct LatentBuffers<float>;
template struct LatentBuffers<bf16>;
template struct LatentForward<double>;
template struct LatentForward<float>;
template struct LatentForward<bf16>;
template struct LatentBackward<double>;
template struct LatentBackward<float>;
template struct LatentBackward<bf16>;

}  // namespace forge

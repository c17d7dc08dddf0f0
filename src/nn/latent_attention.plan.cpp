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

FORGE_INSTANTIATE_PARAMETERS(LatentParameters);

LatentSplits latent_splits(const ModelSpec& s) {
  return {{whole_lines(s.q_lora()), whole_lines(s.C()), BlockProduct::q_down},
          {whole_lines(s.kv_down_columns()), whole_lines(s.C()), BlockProduct::kv_down},
          {split_lines(s.q_columns()), whole_lines(s.q_up_inputs()), BlockProduct::q_up},
          {split_lines(s.kv_up_columns()), whole_lines(s.kv_lora()), BlockProduct::kv_up}};
}

void list_latent_norms(Segments& list) {
  const ModelSpec& s = list.spec;
  if (s.q_lora() > 0) list_norm(list, Pass::forward, list.S, s.q_lora());
  list_norm(list, Pass::forward, list.S, s.kv_lora());
  list.over_rows("copy_rows", list.S, s.rotary_dim(), 1, 1);
  list.over_rows("rotary", list.S, s.rotary_dim(), 1, 1);
}

void list_latent_heads(Segments& list) {
  const ModelSpec& s = list.spec;
  const LatentSplits w = latent_splits(s);
  list.gather_rows(s.latent_columns());
  list.block_linear(ProductOf::output, list.R, w.q_up);
  list_adapter(list, BlockProduct::q_up, ProductOf::output);
  list.block_linear(ProductOf::output, list.R, w.kv_up);
  list_adapter(list, BlockProduct::kv_up, ProductOf::output);
  list.over_rows("rotary", list.R, s.H() * s.rotary_dim(), 1, 1);
  list.move_rows("latent_keys_forward", 1, list.R * (s.kv_up_columns() + s.rotary_dim()),
                 list.R * (s.kv_columns() + s.v_columns()));
}

namespace {

void list_forward(Segments& list, std::int64_t layer) {
  const ModelSpec& s = list.spec;
  const LatentSplits w = latent_splits(s);
  list_norm(list, Pass::forward, list.S, s.C());
  if (s.q_lora() > 0) list.block_linear(ProductOf::output, list.S, w.q_down, true);
  list_adapter(list, BlockProduct::q_down, ProductOf::output);
  list.block_linear(ProductOf::output, list.S, w.kv_down, true);
  list_adapter(list, BlockProduct::kv_down, ProductOf::output);
  list_latent_norms(list);
  list_latent_heads(list);
  list_attend(list, layer, Pass::forward);
}

void list_weight(Segments& list, std::int64_t rows, const MatrixSplit& w) {
  if (!list.frozen) list.block_linear(ProductOf::weight_gradient, rows, w);
  list_adapter(list, w.product, ProductOf::weight_gradient);
}

void list_up_weight(Segments& list) {
  const LatentSplits w = latent_splits(list.spec);
  list_weight(list, list.R, w.q_up);
  list_weight(list, list.R, w.kv_up);
}

void list_down_weight(Segments& list) {
  const LatentSplits w = latent_splits(list.spec);
  if (list.spec.q_lora() > 0) list_weight(list, list.S, w.q_down);
  list_weight(list, list.S, w.kv_down);
}

// `pass`: alone, or with W.
void list_backward_input(Segments& list, std::int64_t layer, Pass pass) {
  const ModelSpec& s = list.spec;
  const LatentSplits w = latent_splits(s);
  const auto norm_of_latent = [&](std::int64_t columns) { list_norm_backward(list, list.S, columns, 2, 1); };
  // Gradients of inputs of q_up and kv_up, and without q_lora of kv_down, stand in those of the latents from a column
  // on.
  const auto aligned = [&](std::int64_t column) { return s.latent_columns() % 8 == 0 && column % 8 == 0; };
  list_attend(list, layer, pass);
  list.over_rows("rotary", list.R, s.H() * s.rotary_dim(), 1, 1);
  list.move_rows("latent_keys_backward", 1, list.R * (s.kv_columns() + s.v_columns()),
                 list.R * (s.kv_up_columns() + s.rotary_dim()));
  list.block_linear(ProductOf::input_gradient, list.R, w.q_up, false, aligned(0));
  list_adapter(list, BlockProduct::q_up, ProductOf::input_gradient);
  list.block_linear(ProductOf::input_gradient, list.R, w.kv_up, false, aligned(s.q_up_inputs()));
  list_adapter(list, BlockProduct::kv_up, ProductOf::input_gradient);
  if (pass == Pass::backward) {
    list.wait_behind();
    list.reduce_behind(s.latent_columns());
    list_attend(list, layer, Pass::backward_weight);
    list_up_weight(list);
    list.wait_behind();
  } else {
    list.reduce_rows(s.latent_columns());
  }
  list.over_rows("rotary", list.S, s.rotary_dim(), 1, 1);
  norm_of_latent(s.kv_lora());
  if (s.q_lora() > 0) {
    norm_of_latent(s.q_lora());
    list.block_linear(ProductOf::input_gradient, list.S, w.q_down);
    list_adapter(list, BlockProduct::q_down, ProductOf::input_gradient);
  }
  list.block_linear(ProductOf::input_gradient, list.S, w.kv_down, false, s.q_lora() > 0 || aligned(0));
  list_adapter(list, BlockProduct::kv_down, ProductOf::input_gradient);
  list_norm(list, Pass::backward_input, list.S, s.C());
  if (pass == Pass::backward) list_down_weight(list);
}

}  // namespace

void list_latent_attention(Segments& list, std::int64_t layer, Pass pass) {
  if (pass == Pass::forward) return list_forward(list, layer);
  if (pass != Pass::backward_weight) return list_backward_input(list, layer, pass);
  list.gather_rows(list.spec.latent_columns());
  list_attend(list, layer, pass);
  list_up_weight(list);
  list_down_weight(list);
}

}  // namespace forge

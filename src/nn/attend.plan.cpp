#include "nn/attend.plan.hpp"

#include "nn/context_attention.plan.hpp"

namespace forge {

MatrixSplit attention_out_split(const ModelSpec& s, std::int64_t layer) {
  return {whole_lines(s.C()), split_lines(s.mixed_columns(layer)), BlockProduct::attention_out};
}

void list_attend(Segments& list, std::int64_t layer, Pass pass) {
  const ModelDeck& o = list.spec.options;
  const MatrixSplit out = attention_out_split(list.spec, layer);
  const std::int64_t C = list.spec.C();
  switch (pass) {
    case Pass::forward:
      list_context(list, layer, pass);
      if (list.spec.output_gate()) list.over_rows("gate_output", list.R, list.spec.o_columns(), 2, 1);
      list.block_linear(ProductOf::output, list.R, out);
      list_adapter(list, BlockProduct::attention_out, ProductOf::output);
      list.reduce_rows(C);
      if (o.attention_out_bias) list.over_rows("add_bias", list.S, C, 1, 1);
      return;
    case Pass::backward_input:
    case Pass::backward:
      list_output_gradient(list);
      list.gather_rows(C);
      if (pass == Pass::backward && !keeps_gathered(list.c))
        list.gather_behind(list.spec.mla() ? list.spec.latent_columns() : C);
      list.block_linear(ProductOf::input_gradient, list.R, out);
      list_adapter(list, BlockProduct::attention_out, ProductOf::input_gradient);
      if (list.spec.output_gate()) list.over_rows("gate_output_backward", list.R, list.spec.o_columns(), 3, 2);
      list.over_rows("attention_delta", list.R, list.spec.o_columns(), 2, 0);
      return list_context(list, layer, Pass::backward_input);
    case Pass::backward_weight:
      if (!list.frozen) list.block_linear(ProductOf::weight_gradient, list.R, out);
      if (o.attention_out_bias && !list.frozen) list.column_sums("column_sum", list.S, C, 1);
      list_adapter(list, BlockProduct::attention_out, ProductOf::weight_gradient);
  }
}

}  // namespace forge

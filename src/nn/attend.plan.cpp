#include "nn/attend.plan.hpp"

#include "nn/context_attention.plan.hpp"

namespace forge {

MatrixSplit attention_out_split(const ModelSpec& s) {
  return {whole_lines(s.C()), split_lines(s.o_columns()), BlockProduct::attention_out};
}

void add_attention_sends(Sends& sends, Pass pass) {
  const std::int64_t inputs = sends.c.spec.attention_input_columns();
  if (pass != Pass::backward_input) sends.rows(Collective::all_gather, inputs);
  if (pass == Pass::backward_weight) return;
  if (pass == Pass::backward_input) sends.rows(Collective::all_gather);
  sends.rows(Collective::reduce_scatter, pass == Pass::forward ? sends.c.spec.C() : inputs);
  const auto keys = pass == Pass::forward ? context_sends_forward(sends.c) : context_sends_backward(sends.c);
  sends.list.insert(sends.list.end(), keys.begin(), keys.end());
}

void add_attend_operations(Operations& o, std::int64_t layer, Pass pass) {
  const ModelSpec& s = o.spec;
  const bool biased = s.options.attention_out_bias;
  switch (pass) {
    case Pass::forward:
      add_context_operations(o, layer, pass);
      o.block_linear(ProductOf::output, o.R, attention_out_split(s));
      if (biased) o.over_rows("add_bias", o.S, s.C(), 1, 1);
      return;
    case Pass::backward_input:
      if (s.options.dropout > 0) o.over_rows("dropout", o.S, s.C(), 1, 1);
      o.block_linear(ProductOf::input_gradient, o.R, attention_out_split(s));
      o.over_rows("attention_delta", o.R, s.o_columns(), 2, 0);
      return add_context_operations(o, layer, pass);
    case Pass::backward_weight:
      o.block_linear(ProductOf::weight_gradient, o.R, attention_out_split(s));
      if (biased) o.column_sums("column_sum", o.S, s.C(), 1);
  }
}

}  // namespace forge

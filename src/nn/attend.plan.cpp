#include "nn/attend.plan.hpp"

#include "nn/context_attention.plan.hpp"

namespace forge {

void add_attention_sends(Sends& sends, Pass pass) {
  const std::int64_t inputs = sends.c.spec.attention_input_columns();
  if (pass != Pass::backward_input) sends.rows(Collective::all_gather, inputs);
  if (pass == Pass::backward_weight) return;
  if (pass == Pass::backward_input) sends.rows(Collective::all_gather);
  sends.rows(Collective::reduce_scatter, pass == Pass::forward ? sends.c.spec.C() : inputs);
  const auto keys = pass == Pass::forward ? context_sends_forward(sends.c) : context_sends_backward(sends.c);
  sends.list.insert(sends.list.end(), keys.begin(), keys.end());
}

}  // namespace forge

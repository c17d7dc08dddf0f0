#include "nn/attend.plan.hpp"

#include "nn/context_attention.plan.hpp"

namespace forge {

namespace {

constexpr Reader B = Reader::backward_input, W = Reader::backward_weight;

}  // namespace

void add_attention_output_parameters(UnitBuilder& unit) {
  const ModelSpec& s = unit.spec;
  const std::string hf = unit.hf_of_block("self_attn.o_proj", "attn.c_proj");
  unit.add(Role::attention_out, "attention.out", hf + ".weight", {s.C(), s.o_columns()}, split_columns(s.value_dim()),
           Initial::normal, unit.output_std(), unit.gpt2());
  if (s.options.attention_out_bias)
    unit.add(Role::attention_out_bias, "attention.out_bias", hf + ".bias", {s.C()}, Initial::zeros);
}

template <class T>
void AttendBuffers<T>::list_outputs(BufferLister& l) {
  l.save(o, "attention output", l.R, l.spec.o_columns(), W);
  l.save(lse, "attention log-sum-exp", l.R, l.spec.H(), B);
  l.save(h, "residual after attention", l.S, l.spec.C(), B);
}

template <class T>
void AttendBuffers<T>::list_attend_gradients(BufferLister& l) {
  l.add(d_h, "gradient after attention", l.S, l.spec.C(), W);
  if (output_rows_differ(l.c)) l.add(d_out, "gradient of attention projection", l.R, l.spec.C(), W);
}

template <class T>
void AttendScratch<T>::list_attend(BufferLister& l) {
  l.add(d_o, "gradient of attention output", l.R, l.spec.o_columns(), B);
  l.add(delta, "attention delta", l.R, l.spec.H(), B);
  if (rounds<T> && l.c.microbatch.cp == 1) l.add(d_q_sums, "sums of the gradient of q", l.R, l.spec.q_columns(), B);
}

template struct AttendBuffers<double>;
template struct AttendBuffers<float>;
template struct AttendBuffers<bf16>;
template struct AttendScratch<double>;
template struct AttendScratch<float>;
template struct AttendScratch<bf16>;

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

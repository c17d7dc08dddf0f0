#include "nn/head.plan.hpp"

#include "model/unit_builder.hpp"

namespace forge {

Unit output_unit(const ModelSpec& s) {
  UnitBuilder unit(s, UnitKind::output, -1, "head");
  unit.add(Role::output, "output", "lm_head.weight", {s.V(), s.C()}, split_rows(), Initial::normal, unit.matrix_std());
  return unit.finish();
}

Unit final_norm_unit(const ModelSpec& s) {
  UnitBuilder unit(s, UnitKind::final_norm, -1, "head");
  const std::string hf = unit.hf("model.norm.", "transformer.ln_f.");
  unit.add(Role::final_norm, "norm", hf + "weight", {s.C()}, Initial::ones);
  if (s.layernorm()) unit.add(Role::final_norm_bias, "norm_bias", hf + "bias", {s.C()}, Initial::zeros);
  return unit.finish();
}

template <class T>
void StateBuffers<T>::list_of_norm(BufferLister& l, bool of_depth) {
  constexpr Reader B = Reader::backward_input;
  if (!of_depth && l.spec.layernorm()) l.add(norm.mean, "final norm mean", l.S, 1, B);
  l.add(norm.rstd, of_depth ? "norm before the head rstd" : "final norm rstd", l.S, 1, B);
  l.add(d_state, of_depth ? "gradient of its output" : "gradient of final norm output", l.S, l.spec.C(), B);
}

template <class T>
void StateBuffers<T>::list_of_head(BufferLister& l) {
  l.add(d_state, "gradient of the head's input", l.S, l.spec.C(), Reader::backward_input);
}

template <class T>
void HeadScratch<T>::list(BufferLister& l) {
  const std::int64_t chunk = l.c.head_chunk_rows;
  l.add(logits, "logits of a chunk", chunk, l.spec.V());
  l.add(loss, "loss of each row", chunk, 1);
  l.add(z, "z of each row", chunk, 1);
  if (rounds<T>) l.add(d_logits, "gradient of logits", chunk, l.spec.V());
  if (l.c.tp == 1) return;
  l.add(statistics, "statistics of each row", l.c.tp * chunk, 3);
  rows.list_rows(l);
  l.add(d_rows, "gradient of final norm output, a part", l.R, l.spec.C());
}

template struct StateBuffers<double>;
template struct StateBuffers<float>;
template struct StateBuffers<bf16>;
template struct HeadScratch<double>;
template struct HeadScratch<float>;
template struct HeadScratch<bf16>;

void add_head_sends(Sends& sends) {
  const BufferContext& c = sends.c;
  sends.rows(Collective::all_gather);
  for (std::int64_t begin = 0; begin < c.microbatch.rows(); begin += c.head_chunk_rows)
    sends.add(Group::tp, Collective::all_gather, 3 * std::min(c.head_chunk_rows, c.microbatch.rows() - begin),
              c.precision.accumulate);
  sends.rows(Collective::reduce_scatter);
}

}  // namespace forge

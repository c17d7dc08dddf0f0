#include "nn/mtp.plan.hpp"

namespace forge {

void add_mtp_parameters(UnitBuilder& unit) {
  const std::int64_t C = unit.spec.C();
  const std::string prefix = unit.hf_of_block();
  unit.add(Role::mtp_projection, "mtp.projection", prefix + "eh_proj.weight", {C, 2 * C}, Initial::normal,
           unit.matrix_std());
  unit.add(Role::mtp_embedding_norm, "mtp.embedding_norm", prefix + "enorm.weight", {C}, Initial::ones);
  unit.add(Role::mtp_hidden_norm, "mtp.hidden_norm", prefix + "hnorm.weight", {C}, Initial::ones);
  unit.add(Role::mtp_norm, "mtp.norm", prefix + "shared_head.norm.weight", {C}, Initial::ones);
}

template <class T>
void MtpBuffers<T>::list(BufferLister& l) {
  constexpr Reader B = Reader::backward_input;
  l.keep(embedding, "embedding of shifted tokens", l.S, l.spec.C(), B);
  l.keep(embedding_rstd, "its norm's rstd", l.S, 1, B);
  l.keep(hidden_rstd, "hidden state's norm rstd", l.S, 1, B);
  l.recompute(in, "embedding and hidden state", l.S, 2 * l.spec.C(), Reader::backward_weight);
}

template <class T>
void MtpBuffers<T>::list_gradients(BufferLister& l) {
  l.add(d_out, "gradient of the block's input", l.S, l.spec.C(), Reader::backward_weight);
}

template <class T>
void MtpScratch<T>::list(BufferLister& l) {
  l.add(d_in, "gradient of embedding and hidden state", l.S, 2 * l.spec.C());
  l.add(d_embedding, "gradient of the embedding", l.S, l.spec.C());
  rows.list_partial(l, l.spec.C());
}

template struct MtpBuffers<double>;
template struct MtpBuffers<float>;
template struct MtpBuffers<bf16>;
template struct MtpScratch<double>;
template struct MtpScratch<float>;
template struct MtpScratch<bf16>;

void add_mtp_sends(Sends& sends, Pass pass, bool recompute) {
  if (pass == Pass::backward_weight || recompute) return;
  add_embedding_sends(sends, pass);
}

}  // namespace forge

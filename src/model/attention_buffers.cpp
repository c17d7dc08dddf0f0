#include "model/block_parts.hpp"

namespace forge {

namespace {

constexpr Reader B = Reader::backward_input, W = Reader::backward_weight;

}  // namespace

void add_attention_outputs(const BufferContext& c, TaggedBuffers& list) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  list.push_back({Keep::save, m.value(Buf::o, "attention output", s.o_columns(), W)});
  list.push_back({Keep::save, m.statistic(Buf::lse, "attention log-sum-exp", s.H(), B)});
  list.push_back({Keep::save, m.stream_value(Buf::h, "residual after attention", B)});
}

void add_attention_forward(const BufferContext& c, TaggedBuffers& list) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  if (s.layernorm()) list.push_back({Keep::save, m.stream_statistic(Buf::mean1, "norm 1 mean", B)});
  list.push_back({Keep::save, m.stream_statistic(Buf::rstd1, "norm 1 rstd", B)});
  if (s.mla()) return add_latent_forward(c, list);
  list.push_back({Keep::recompute, m.stream_value(Buf::n1, "norm 1 output", W)});
  list.push_back({Keep::save, m.value(Buf::qkv, "q, k, v", s.qkv_columns(), B)});
  if (s.options.qk_norm) {
    list.push_back({Keep::save, m.value(Buf::qk, "normalised q, k", s.q_columns() + s.kv_columns(), B)});
    list.push_back({Keep::save, m.statistic(Buf::qk_rstd, "QK-norm rstd", s.H() + s.K(), B)});
  }
  add_attention_outputs(c, list);
}

void add_attention_gradients(const BufferContext& c, BufferList& list) {
  if (c.spec.mla()) return add_latent_gradients(c, list);
  const BufferMaker m{c};
  list.push_back(m.value(Buf::d_qkv, "gradient of q, k, v", c.spec.qkv_columns(), W));
}

std::int64_t attention_bias_columns(const BufferContext& c) {
  const ModelSpec& s = c.spec;
  return std::max<std::int64_t>(s.options.qkv_bias ? s.qkv_columns() : 0, s.options.attention_out_bias ? s.C() : 0);
}

BufferList scratch_backward_attention(const BufferContext& c) {
  if (c.spec.mla()) return scratch_backward_latents(c);
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  BufferList list{m.value(Buf::d_o, "gradient of attention output", s.o_columns(), B),
                  m.statistic(Buf::delta, "attention delta", s.H(), B),
                  m.stream_value(Buf::d_norm, "gradient of norm output", B), m.partial(std::max(s.C(), s.D()))};
  if (c.precision.compute != c.precision.accumulate && c.microbatch.cp == 1)
    list.push_back(m.statistic(Buf::d_q_sums, "sums of the gradient of q", s.q_columns(), B));
  m.add_all_rows(list);
  return list;
}

}  // namespace forge

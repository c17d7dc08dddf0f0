#include "model/block_parts.hpp"

// Multi-head latent attention, nn/latent_attention.hpp.

namespace forge {

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input, W = Reader::backward_weight;

// Where the rows of the stream are not all rows.
void add_all_latents(const BufferContext& c, BufferList& list, Reader reader) {
  if (c.tp > 1)
    list.push_back(BufferMaker{c}.value(Buf::all_latents, "latents of all tp ranks", c.spec.latent_columns(), reader));
}

}  // namespace

void add_latent_forward(const BufferContext& c, TaggedBuffers& list) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  const auto stream_value = [&](Buf id, std::string_view name, std::int64_t columns, Reader reader) {
    return BufferSpec{id, name, {{m.stream, columns}}, c.precision.compute, reader};
  };
  if (s.q_lora() > 0) {
    list.push_back({Keep::recompute, m.stream_value(Buf::n1, "norm 1 output", W)});
    list.push_back({Keep::save, stream_value(Buf::q_down, "q latent", s.q_lora(), B)});
    list.push_back({Keep::save, m.stream_statistic(Buf::q_down_rstd, "q latent rstd", B)});
  }
  list.push_back({Keep::save, stream_value(Buf::kv_down, "kv latent, rope key", s.kv_down_columns(), B)});
  list.push_back({Keep::save, m.stream_statistic(Buf::kv_down_rstd, "kv latent rstd", B)});
  list.push_back({Keep::recompute, stream_value(Buf::latents, "inputs of the up-projections", s.latent_columns(), W)});
  list.push_back({Keep::save, m.value(Buf::q, "q", s.q_columns(), B)});
  list.push_back({Keep::save, m.value(Buf::k, "k", s.kv_columns(), B)});
  list.push_back({Keep::save, m.value(Buf::v, "v", s.v_columns(), B)});
  add_attention_outputs(c, list);
}

BufferList scratch_forward_latents(const BufferContext& c) {
  BufferList list;
  if (!c.spec.mla()) return list;
  list.push_back(BufferMaker{c}.value(Buf::kv_up, "keys and values, by head", c.spec.kv_up_columns(), F));
  add_all_latents(c, list, F);
  return list;
}

void add_latent_gradients(const BufferContext& c, BufferList& list) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  list.push_back(m.value(Buf::d_q, "gradient of q", s.q_columns(), W));
  list.push_back(m.value(Buf::d_kv_up, "gradient of keys and values, by head", s.kv_up_columns(), W));
  list.push_back({Buf::d_latents, "gradient of the latents", {{m.stream, s.latent_columns()}}, c.precision.compute, W});
}

BufferList scratch_backward_latents(const BufferContext& c) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  BufferList list{
      m.value(Buf::d_o, "gradient of attention output", s.o_columns(), B),
      m.statistic(Buf::delta, "attention delta", s.H(), B), m.value(Buf::d_k, "gradient of k", s.kv_columns(), B),
      m.value(Buf::d_v, "gradient of v", s.v_columns(), B), m.partial(std::max({s.C(), s.q_lora(), s.kv_lora()}))};
  if (c.precision.compute != c.precision.accumulate && c.microbatch.cp == 1)
    list.push_back(m.statistic(Buf::d_q_sums, "sums of the gradient of q", s.q_columns(), B));
  if (s.q_lora() > 0) list.push_back(m.stream_value(Buf::d_norm, "gradient of norm output", B));
  add_all_latents(c, list, B);
  return list;
}

void add_attention_scratch_weight(const BufferContext& c, BufferList& list) {
  if (c.spec.mla()) add_all_latents(c, list, W);
}

}  // namespace forge

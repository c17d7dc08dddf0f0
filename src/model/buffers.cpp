#include "model/buffers.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "core/partials.hpp"
#include "model/block_parts.hpp"
#include "model/mtp_buffers.hpp"

namespace forge {

std::size_t aligned_bytes(const BufferList& list) {
  std::size_t sum = 0;
  for (const auto& buffer : list) sum += align_up(buffer.bytes());
  return sum;
}

std::int64_t resolve_head_chunk(std::int64_t wanted, std::int64_t rows, std::int64_t vocabulary) {
  if (wanted > 0) return std::min(wanted, rows);
  const std::int64_t fitting = (std::int64_t{16} << 20) / vocabulary / 64 * 64;
  return std::min(rows, std::max<std::int64_t>(fitting, 128));
}

Precision precision_of(const Deck& deck) {
  return deck.train.precision == PrecisionName::fp64   ? fp64_precision
         : deck.train.precision == PrecisionName::fp32 ? fp32_precision
                                                       : bf16_precision;
}

BufferContext buffer_context(const Deck& deck, const ModelSpec& local) {
  const Microbatch microbatch{deck.train.microbatch_sequences, deck.train.sequence_tokens,
                              static_cast<int>(deck.mesh.cp)};
  const Precision precision = precision_of(deck);
  return {local,
          microbatch,
          precision,
          deck.train.recompute,
          resolve_head_chunk(deck.train.head_chunk_rows, microbatch.rows(), local.V()),
          static_cast<int>(deck.mesh.tp),
          deck.mesh.cp_method,
          static_cast<int>(deck.mesh.ep),
          std::max(static_cast<int>(deck.mesh.etp), 1),
          optimizer_state(deck.optimizer, precision.storage)};
}

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input, W = Reader::backward_weight;

bool kept(Keep keep, Recompute recompute) {
  return recompute == Recompute::none || (recompute == Recompute::selective && keep == Keep::save);
}

TaggedBuffers forward_of_block(const BufferContext& c, std::int64_t layer) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  TaggedBuffers list;
  add_attention_forward(c, list);
  if (s.layernorm()) list.push_back({Keep::save, m.stream_statistic(Buf::mean2, "norm 2 mean", B)});
  list.push_back({Keep::save, m.stream_statistic(Buf::rstd2, "norm 2 rstd", B)});
  list.push_back({Keep::recompute, m.stream_value(Buf::n2, "norm 2 output", W)});
  if (s.is_moe(layer)) {
    add_moe_forward(c, list);
    return list;
  }
  // Its gradient overwrites it, and W reads that.
  list.push_back({Keep::save, m.value(Buf::up, s.gated() ? "gate and up" : "up", s.up_columns(), W)});
  list.push_back({Keep::recompute, m.value(Buf::act, "activation", s.F(), W)});
  return list;
}

BufferList filtered(const BufferContext& c, std::int64_t layer, bool want_kept) {
  BufferList list;
  for (const auto& [keep, buffer] : forward_of_block(c, layer))
    if (kept(keep, c.recompute) == want_kept) list.push_back(buffer);
  return list;
}

}  // namespace

BufferList batch_buffers(const BufferContext& c) {
  const std::int64_t rows = c.microbatch.rows();
  BufferList list{{Buf::tokens, "tokens", {{rows, 1}}, DType::i32, W},
                  {Buf::labels, "labels", {{rows, 1}}, DType::i32, F},
                  {Buf::positions, "positions", {{rows, 1}}, DType::i32, B},
                  {Buf::documents, "documents", {{rows, 1}}, DType::i32, B},
                  {Buf::samples, "samples", {{rows, 1}}, DType::i64, B},
                  {Buf::token_order, "rows by token", {{rows, 1}}, DType::i32, W}};
  if (!c.spec.rope()) list.push_back({Buf::position_order, "rows by position", {{c.stream_rows(), 1}}, DType::i32, W});
  if (c.microbatch.cp == 1) return list;
  const std::int64_t all = c.microbatch.rows_of_all();
  list.push_back({Buf::key_positions, "positions of keys", {{all, 1}}, DType::i32, B});
  list.push_back({Buf::key_documents, "documents of keys", {{all, 1}}, DType::i32, B});
  if (c.cp_method == CpMethod::all_to_all)
    list.push_back({Buf::key_samples, "samples of keys", {{all, 1}}, DType::i64, B});
  return list;
}

BufferList block_input(const BufferContext& c) {
  return {BufferMaker{c}.stream_value(Buf::x, "block input", B)};
}

BufferList saved_of_block(const BufferContext& c, std::int64_t layer) {
  return filtered(c, layer, true);
}

BufferList recomputed_of_block(const BufferContext& c, std::int64_t layer) {
  return filtered(c, layer, false);
}

BufferList scratch_forward_block(const BufferContext& c, std::int64_t layer) {
  const BufferMaker m{c};
  BufferList list{m.stream_value(Buf::branch, "branch output", F)};
  m.add_all_rows(list);
  if (c.spec.is_moe(layer)) add_moe_scratch_forward(c, list);
  return list;
}

BufferList gradients_of_block(const BufferContext& c, std::int64_t layer) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  BufferList list{m.stream_value(Buf::d_h, "gradient after attention", W)};
  add_attention_gradients(c, list);
  if (c.spec.is_moe(layer)) add_moe_gradients(c, list);
  const bool rows_differ = s.options.dropout > 0 || c.tp > 1;
  const bool has_mlp = !s.is_moe(layer) || s.Fs() > 0, gated_mlp = s.is_moe(layer) && s.options.shared_expert_gate;
  if (has_mlp && (rows_differ || gated_mlp))
    list.push_back(m.value(Buf::d_down_out, "gradient of feed-forward output", s.C(), W));
  if (rows_differ) {
    list.push_back(m.value(Buf::d_attention_out, "gradient of attention projection", s.C(), W));
  }
  return list;
}

BufferList gradient_stream(const BufferContext& c) {
  const BufferMaker m{c};
  return {m.stream_value(Buf::d_stream_a, "gradient of the residual, a", W),
          m.stream_value(Buf::d_stream_b, "gradient of the residual, b", W)};
}

BufferList output_gradient(const BufferContext& c) {
  return {BufferMaker{c}.stream_value(Buf::d_stream_a, "gradient of the output", W)};
}

BufferList scratch_backward_mlp(const BufferContext& c, std::int64_t layer) {
  const BufferMaker m{c};
  BufferList list{m.stream_value(Buf::d_norm, "gradient of norm output", B), m.partial(c.spec.C())};
  m.add_all_rows(list);
  if (c.spec.is_moe(layer))
    add_moe_scratch_backward(c, list);
  else
    list.push_back(m.value(Buf::d_act, "gradient of the activation", c.spec.F(), B));
  return list;
}

BufferList scratch_backward_weight(const BufferContext& c, std::int64_t layer) {
  const BufferMaker m{c};
  const ModelSpec& s = c.spec;
  std::int64_t columns = attention_bias_columns(c);
  if (s.options.mlp_bias) columns = std::max({columns, s.up_columns(), s.C()});
  BufferList list;
  if (columns > 0) list.push_back(m.partial(columns));
  add_attention_scratch_weight(c, list);
  m.add_all_rows(list);
  if (c.spec.is_moe(layer)) add_moe_scratch_weight(c, list);
  return list;
}

BufferList head_input(const BufferContext& c) {
  return {BufferMaker{c}.stream_value(Buf::x_final, "last residual", B)};
}

BufferList saved_of_head(const BufferContext& c) {
  const BufferMaker m{c};
  BufferList list;
  if (c.spec.layernorm()) list.push_back(m.stream_statistic(Buf::mean_final, "final norm mean", B));
  list.push_back(m.stream_statistic(Buf::rstd_final, "final norm rstd", B));
  list.push_back(m.stream_value(Buf::d_n_final, "gradient of final norm output", B));
  return list;
}

BufferList head_output(const BufferContext& c) {
  return {BufferMaker{c}.stream_value(Buf::n_final, "final norm output", B)};
}

BufferList scratch_embedding(const BufferContext& c) {
  BufferList list;
  BufferMaker{c}.add_all_rows(list);
  return list;
}

BufferList scratch_head_forward(const BufferContext& c) {
  const BufferMaker m{c};
  const std::int64_t chunk = c.head_chunk_rows;
  const DType acc = c.precision.accumulate;
  BufferList list{{Buf::logits, "logits of a chunk", {{chunk, c.spec.V()}}, acc, F},
                  {Buf::row_loss, "loss of each row", {{chunk, 1}}, acc, F},
                  {Buf::row_z, "z of each row", {{chunk, 1}}, acc, F}};
  if (c.precision.compute != acc)
    list.push_back({Buf::d_logits, "gradient of logits", {{chunk, c.spec.V()}}, c.precision.compute, F});
  if (c.tp == 1) return list;
  list.push_back({Buf::token_stats, "statistics of each row", {{c.tp * chunk, 3}}, acc, F});
  m.add_all_rows(list);
  list.push_back(m.value(Buf::d_head_rows, "gradient of final norm output, a part", c.spec.C(), F));
  return list;
}

BufferList scratch_head_backward(const BufferContext& c) {
  return {BufferMaker{c}.partial(c.spec.C())};
}

BufferList run_buffers(const BufferContext& c) {
  BufferList list{{Buf::scalars, "step scalars", {{5, 1}}, DType::f64, F},
                  {Buf::norm_partials, "gradient norm sums", {{sum_partials, 1}}, DType::f64, F}};
  if (c.spec.rope()) {
    const Array<std::int64_t, 2> extents{{c.microbatch.sequence_tokens, c.spec.rotary_dim() / 2}};
    list.push_back({Buf::cosine, "rotary cosines", extents, c.precision.accumulate, B});
    list.push_back({Buf::sine, "rotary sines", extents, c.precision.accumulate, B});
  }
  if (c.spec.E() > 0) add_router_run(c, list);
  if (c.spec.options.mtp_depth > 0) add_mtp_run(c, list);
  return list;
}

}  // namespace forge

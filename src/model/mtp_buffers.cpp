#include "model/mtp_buffers.hpp"

#include "model/block_parts.hpp"

namespace forge {

namespace {

constexpr Reader F = Reader::forward, B = Reader::backward_input, W = Reader::backward_weight;

BufferSpec joined(const BufferContext& c, Buf id, const char* name, Reader reader) {
  return {id, name, {{c.stream_rows(), 2 * c.spec.C()}}, c.precision.compute, reader};
}

}  // namespace

BufferList batch_of_mtp(const BufferContext& c) {
  const std::int64_t rows = c.microbatch.rows();
  return {{Buf::tokens, "shifted tokens", {{rows, 1}}, DType::i32, B},
          {Buf::labels, "shifted labels", {{rows, 1}}, DType::i32, F},
          {Buf::token_order, "rows by shifted token", {{rows, 1}}, DType::i32, B}};
}

BufferList saved_of_mtp(const BufferContext& c) {
  const BufferMaker m{c};
  BufferList list{m.stream_value(Buf::mtp_embedding, "embedding of shifted tokens", B),
                  m.stream_statistic(Buf::mtp_embedding_rstd, "its norm's rstd", B),
                  m.stream_statistic(Buf::mtp_hidden_rstd, "hidden state's norm rstd", B)};
  if (c.recompute == Recompute::none) list.push_back(joined(c, Buf::mtp_in, "embedding and hidden state", W));
  return list;
}

BufferList saved_of_depth_norm(const BufferContext& c) {
  const BufferMaker m{c};
  return {m.stream_statistic(Buf::rstd_final, "norm before the head rstd", B),
          m.stream_value(Buf::d_n_final, "gradient of its output", B)};
}

BufferList saved_of_state(const BufferContext& c) {
  return {BufferMaker{c}.stream_value(Buf::d_n_final, "gradient of the head's input", B)};
}

BufferList recomputed_of_mtp(const BufferContext& c) {
  if (c.recompute == Recompute::none) return {};
  return {joined(c, Buf::mtp_in, "embedding and hidden state", W)};
}

BufferList gradients_of_mtp(const BufferContext& c) {
  return {BufferMaker{c}.stream_value(Buf::d_mtp_block, "gradient of the block's input", W)};
}

BufferList scratch_backward_mtp(const BufferContext& c) {
  const BufferMaker m{c};
  return {joined(c, Buf::d_mtp_in, "gradient of embedding and hidden state", B),
          m.stream_value(Buf::d_norm, "gradient of the embedding", B), m.partial(c.spec.C())};
}

void add_mtp_run(const BufferContext& c, BufferList& list) {
  list.push_back({Buf::mtp_sums, "losses of depths", {{c.spec.options.mtp_depth, 2}}, DType::f64, F});
}

}  // namespace forge

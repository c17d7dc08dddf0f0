#include "train/batch_feed.hpp"

namespace forge {

// Where the slot has the buffer.
template <class Rows>
void BatchFeed::copy(Stream& stream, int microbatch, const BufferSet& slot, Buf id, const Rows& rows) {
  if (!slot.has(id)) return;
  const auto part = batch_.of_microbatch(rows, microbatch);
  copy_to_device(stream, slot.raw(id), part.data(), part.size_bytes());
}

void BatchFeed::load_shifted(Stream& stream, int microbatch, int depth, const BufferSet& slot) {
  const ShiftedRows& rows = batch_.shifted.at(static_cast<std::size_t>(depth - 1));
  copy(stream, microbatch, slot, Buf::tokens, rows.tokens);
  copy(stream, microbatch, slot, Buf::labels, rows.labels);
  copy(stream, microbatch, slot, Buf::token_order, rows.token_order);
}

void BatchFeed::load(Stream& stream, int microbatch, const BufferSet& slot) {
  const auto put = [&](Buf id, const auto& rows) { copy(stream, microbatch, slot, id, rows); };
  put(Buf::tokens, batch_.tokens);
  put(Buf::labels, batch_.labels);
  put(Buf::positions, batch_.positions);
  put(Buf::documents, batch_.documents);
  put(Buf::samples, batch_.samples);
  put(Buf::token_order, batch_.token_order);
  put(Buf::position_order, batch_.position_order);
  put(Buf::key_positions, batch_.key_positions);
  put(Buf::key_documents, batch_.key_documents);
  put(Buf::key_samples, batch_.key_samples);
}

}  // namespace forge

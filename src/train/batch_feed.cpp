#include "train/batch_feed.hpp"

#include "core/to_size.hpp"

namespace forge {

// Where the slot has the buffer.
template <class P, class Rows>
void BatchFeed::copy(Stream& stream, int microbatch, const View<P, 1>& to, const Rows& rows) {
  if (to.empty()) return;
  const auto part = batch_.of_microbatch(rows, microbatch);
  copy_to_device(stream, to.data, part.data(), part.size_bytes());
}

void BatchFeed::load_shifted(Stream& stream, int microbatch, int depth, const Batch& to) {
  const ShiftedRows& rows = batch_.shifted.at(to_size(depth - 1));
  copy(stream, microbatch, to.tokens, rows.tokens);
  copy(stream, microbatch, to.labels, rows.labels);
  copy(stream, microbatch, to.token_order, rows.token_order);
}

void BatchFeed::load(Stream& stream, int microbatch, const Batch& to) {
  copy(stream, microbatch, to.tokens, batch_.tokens);
  copy(stream, microbatch, to.labels, batch_.labels);
  copy(stream, microbatch, to.positions, batch_.positions);
  copy(stream, microbatch, to.documents, batch_.documents);
  copy(stream, microbatch, to.document_positions, batch_.document_positions);
  copy(stream, microbatch, to.sources, batch_.sources);
  copy(stream, microbatch, to.texts, batch_.texts);
  copy(stream, microbatch, to.references, batch_.references);
  copy(stream, microbatch, to.samples, batch_.samples);
  copy(stream, microbatch, to.token_order, batch_.token_order);
  copy(stream, microbatch, to.position_order, batch_.position_order);
  copy(stream, microbatch, to.key_positions, batch_.key_positions);
  copy(stream, microbatch, to.key_documents, batch_.key_documents);
  copy(stream, microbatch, to.key_samples, batch_.key_samples);
  copy(stream, microbatch, to.whole_documents, batch_.whole_documents);
}

}  // namespace forge

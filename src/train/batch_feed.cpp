#include "train/batch_feed.hpp"

namespace forge {

void BatchFeed::load(Stream& stream, int microbatch, const BufferSet& slot) {
  auto copy = [&](Buf id, const auto& rows) {
    if (!slot.has(id)) return;
    const auto part = batch_.of_microbatch(rows, microbatch);
    copy_to_device(stream, slot.raw(id), part.data(), part.size_bytes());
  };
  copy(Buf::tokens, batch_.tokens);
  copy(Buf::labels, batch_.labels);
  copy(Buf::positions, batch_.positions);
  copy(Buf::documents, batch_.documents);
  copy(Buf::samples, batch_.samples);
  copy(Buf::token_order, batch_.token_order);
  copy(Buf::position_order, batch_.position_order);
  copy(Buf::key_positions, batch_.key_positions);
  copy(Buf::key_documents, batch_.key_documents);
  copy(Buf::key_samples, batch_.key_samples);
}

}  // namespace forge

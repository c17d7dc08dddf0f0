#include "layout/chunk_buffers.hpp"

#include "model/mtp_buffers.hpp"

namespace forge {

namespace {

void append(BufferList& list, const BufferList& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

BufferList chunk_block_saved(const BufferContext& c, const StageContent& chunk, int l) {
  BufferList list;
  if (l > 0) append(list, block_input(c));
  append(list, saved_of_block(c, chunk.first_layer + l));
  return list;
}

BufferList chunk_head_saved(const BufferContext& c, const StageContent& chunk) {
  BufferList list;
  if (!chunk.head) return list;
  if (chunk.layers > 0) append(list, head_input(c));
  append(list, saved_of_head(c));
  if (chunk.mtp_layers > 0) append(list, head_output(c));
  return list;
}

BufferList chunk_block_apart(const BufferContext& c, const StageContent& chunk, int l) {
  const std::int64_t layer = chunk.first_layer + l;
  BufferList list = rebuilt_of_block(c, layer);
  append(list, gradients_of_block(c, layer));
  if (l + 1 < chunk.layers || chunk.head) append(list, output_gradient(c));
  return list;
}

BufferList chunk_mtp_saved(const BufferContext& c, const StageContent& chunk, int k) {
  BufferList list = saved_of_mtp(c);
  append(list, saved_of_block(c, chunk.first_layer + chunk.layers + k));
  if (k + 1 < chunk.mtp_layers) append(list, head_output(c));
  return list;
}

BufferList chunk_mtp_apart(const BufferContext& c, const StageContent& chunk, int k) {
  const std::int64_t layer = chunk.first_layer + chunk.layers + k;
  BufferList list = rebuilt_of_block(c, layer);
  for (const BufferList& more :
       {gradients_of_block(c, layer), output_gradient(c), rebuilt_of_mtp(c), gradients_of_mtp(c)})
    append(list, more);
  return list;
}

BufferList chunk_embedding_apart(const BufferContext& c, const StageContent& chunk) {
  return chunk.embedding && (chunk.layers > 0 || chunk.head) ? output_gradient(c) : BufferList{};
}

}  // namespace forge

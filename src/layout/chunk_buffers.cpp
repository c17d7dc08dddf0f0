#include "layout/chunk_buffers.hpp"

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
  return list;
}

BufferList chunk_block_apart(const BufferContext& c, const StageContent& chunk, int l) {
  const std::int64_t layer = chunk.first_layer + l;
  BufferList list = rebuilt_of_block(c, layer);
  append(list, gradients_of_block(c, layer));
  if (l + 1 < chunk.layers || chunk.head) append(list, output_gradient(c));
  return list;
}

BufferList chunk_embedding_apart(const BufferContext& c, const StageContent& chunk) {
  return chunk.embedding && (chunk.layers > 0 || chunk.head) ? output_gradient(c) : BufferList{};
}

}  // namespace forge

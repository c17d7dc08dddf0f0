#include "layout/chunk_buffers.hpp"

#include "model/mtp_buffers.hpp"

namespace forge {

namespace {

void append(BufferList& list, const BufferList& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// `list`, of one buffer, for so many states.
BufferList stacked(BufferList list, int states) {
  list.front().extents[0] *= states;
  return list;
}

}  // namespace

BufferList chunk_input(const BufferContext& c, const StageContent& chunk, bool training) {
  if (chunk.layers == 0 && chunk.final_norm()) return head_input(c);
  return stacked(block_input(c), training ? chunk.streams_in : 1);
}

BufferList chunk_output(const BufferContext& c, const StageContent& chunk, bool training) {
  return stacked(block_input(c), training ? chunk.streams_out() : 1);
}

BufferList chunk_output_gradient(const BufferContext& c, const StageContent& chunk) {
  return stacked(output_gradient(c), chunk.streams_out());
}

BufferList chunk_input_gradient(const BufferContext& c, const StageContent& chunk) {
  return stacked(output_gradient(c), chunk.streams_in);
}

BufferList chunk_block_saved(const BufferContext& c, const StageContent& chunk, int l) {
  BufferList list;
  if (l > 0) append(list, block_input(c));
  append(list, saved_of_block(c, chunk.layer(l)));
  return list;
}

BufferList chunk_norm_saved(const BufferContext& c, const StageContent& chunk) {
  BufferList list;
  if (!chunk.final_norm()) return list;
  if (chunk.layers > 0) append(list, head_input(c));
  append(list, saved_of_head(c));
  if (chunk.mtp_layers > 0) append(list, head_output(c));
  return list;
}

int states_at_head(const StageContent& chunk, bool training) {
  if (!chunk.head || chunk.final_norm()) return 0;
  return training ? chunk.streams_in : 1;
}

BufferList chunk_block_apart(const BufferContext& c, const StageContent& chunk, int l) {
  const std::int64_t layer = chunk.layer(l);
  BufferList list = rebuilt_of_block(c, layer);
  append(list, gradients_of_block(c, layer));
  if (l + 1 < chunk.layers || chunk.final_norm()) append(list, output_gradient(c));
  return list;
}

BufferList chunk_mtp_saved(const BufferContext& c, const StageContent& chunk, int k) {
  BufferList list = saved_of_mtp(c);
  append(list, saved_of_block(c, chunk.layer(chunk.layers + k)));
  if (k + 1 < chunk.mtp_layers || !chunk.head) append(list, head_output(c));
  return list;
}

BufferList chunk_mtp_apart(const BufferContext& c, const StageContent& chunk, int k) {
  const std::int64_t layer = chunk.layer(chunk.layers + k);
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

#pragma once

#include "layout/split.hpp"
#include "model/buffers.hpp"

namespace forge {

// The buffers of a pipeline chunk, from the lists of its layers. A chunk may hold the embedding, layers, the head, any
// of them, or nothing: then it hands on what it gets.

// What it receives: the first layer's input, or the head's.
inline BufferList chunk_input(const BufferContext& c, const StageContent& chunk) {
  return chunk.layers == 0 && chunk.head ? head_input(c) : block_input(c);
}
// What layer l (from 0) keeps beside the chunk's input.
BufferList chunk_block_saved(const BufferContext& c, const StageContent& chunk, int l);
// What depth k (from 0) of multi-token prediction keeps, its block included. The depth before it, or the model's head,
// keeps its normalised output for it.
BufferList chunk_mtp_saved(const BufferContext& c, const StageContent& chunk, int k);
BufferList chunk_head_saved(const BufferContext& c, const StageContent& chunk);
// What B leaves for W of layer l, where they are separate actions; the gradient of the chunk's output stands elsewhere
// unless the head is here.
BufferList chunk_block_apart(const BufferContext& c, const StageContent& chunk, int l);
// The same of depth k of multi-token prediction, and of the embedding.
BufferList chunk_mtp_apart(const BufferContext& c, const StageContent& chunk, int k);
BufferList chunk_embedding_apart(const BufferContext& c, const StageContent& chunk);

// Whether the chunk hands an output on, and gets a gradient for it; whether it hands a gradient back.
inline bool has_output(const StageContent& chunk) {
  return !chunk.head;
}
inline bool has_input_gradient(const StageContent& chunk) {
  return !chunk.embedding;
}

}  // namespace forge

#pragma once

#include "layout/split.hpp"
#include "model/buffers.hpp"

namespace forge {

// The buffers of a pipeline chunk, from the lists of its layers. A chunk may hold the embedding, layers, the head, any
// of them, or nothing: then it hands on what it gets.

// What it receives: the first layer's input, the final norm's, or, stacked by rows, several states (S, C).
BufferList chunk_input(const BufferContext& c, const StageContent& chunk, bool training);
// What it hands on, and the gradients of both. Evaluation has no multi-token layers, and one state everywhere.
BufferList chunk_output(const BufferContext& c, const StageContent& chunk, bool training);
BufferList chunk_output_gradient(const BufferContext& c, const StageContent& chunk);
BufferList chunk_input_gradient(const BufferContext& c, const StageContent& chunk);
// What layer l (from 0) keeps beside the chunk's input.
BufferList chunk_block_saved(const BufferContext& c, const StageContent& chunk, int l);
// What its k-th multi-token layer (from 0) keeps, its block included, and its normalised output, where another layer or
// stage reads that.
BufferList chunk_mtp_saved(const BufferContext& c, const StageContent& chunk, int k);
// The same of the final norm; and of how many states that other stages normalised the head takes the loss here: each
// with saved_of_state.
BufferList chunk_norm_saved(const BufferContext& c, const StageContent& chunk);
int states_at_head(const StageContent& chunk, bool training);
// What B leaves for W of layer l, where they are separate actions; the gradient of the chunk's output stands elsewhere.
BufferList chunk_block_apart(const BufferContext& c, const StageContent& chunk, int l);
// The same of the k-th multi-token layer, and of the embedding.
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

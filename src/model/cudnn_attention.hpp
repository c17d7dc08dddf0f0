#pragma once

#include <cstddef>
#include <cstdint>

#include "config/deck.hpp"
#include "model/buffers.hpp"

namespace forge {

// Which decks' attention cuDNN computes, and the memory that it needs for it.

// Whether it has the attention of a deck's steps, in bf16: it masks whole sequences of one document, in one piece, and
// its kernels have neither forge's dropout nor soft caps nor the largest logits of rows.
bool cudnn_computes(const Deck& deck);

// Whether a run takes it: where it is asked for, and where automatic comes to it (`preferred`: the GPU has no fast
// kernels of forge's, and the build has cuDNN) and the workspace holds the least part. Else forge's kernels compute.
bool takes_cudnn(const Deck& deck, const BufferContext& buffers, bool preferred);

// Extents of a backward pass. H heads of queries share K of keys.
struct CudnnBackward {
  std::int64_t sequences, rows, heads, kv_heads, size, value_size;  // B, T, H, K, D, Dv

  // A part of it: so many sequences, and of one sequence so many heads of keys with the queries that read them.
  CudnnBackward part(std::int64_t of_sequences, std::int64_t of_kv_heads) const {
    return {of_sequences, rows, heads / kv_heads * of_kv_heads, of_kv_heads, size, value_size};
  }
};

// Bytes of workspace for all of it in one graph. cuDNN's deterministic backward keeps the gradients of the scores, (B,
// H, T, T) in bf16 with T rounded up to 64 and 128, from which d_q is a product of its own; with groups of heads d_k
// and d_v of each head of queries; and a number of each row and head. forge's lse by heads is another one. (cuDNN 9.14
// on an H100; a MiB more, for its small needs.)
std::size_t cudnn_backward_bytes(const CudnnBackward& n);

// The largest part that fits: all, or some sequences, or one sequence's heads of some heads of keys. The sizes of parts
// divide the whole. The least one where none fits.
CudnnBackward cudnn_part(const CudnnBackward& n, std::size_t workspace_bytes);

// Throws BadInput where cuDNN is asked for and the workspace of libraries is too small for the least part of the rank's
// attention.
void check_cudnn_workspace(const Deck& deck, const BufferContext& buffers);

}  // namespace forge

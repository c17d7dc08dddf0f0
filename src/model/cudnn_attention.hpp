#pragma once

#include <cstddef>
#include <cstdint>

#include "config/deck.hpp"
#include "model/buffers.hpp"

namespace forge {

// What machine.attention = cudnn means for a deck, and the memory that cuDNN needs for it.

// Whether cuDNN computes the attention of a deck's steps: its masks are those of whole sequences of one document, in
// one piece, and its kernels have neither forge's dropout nor the largest logits of rows. Else tensor cores do.
bool cudnn_computes(const Deck& deck);

// Extents of a backward pass. H heads of queries share K of keys.
struct CudnnBackward {
  std::int64_t sequences, rows, heads, kv_heads, size, value_size;  // B, T, H, K, D, Dv

  // A part of it: so many sequences, and of one sequence so many heads of keys with the queries that read them.
  CudnnBackward part(std::int64_t of_sequences, std::int64_t of_kv_heads) const {
    return {of_sequences, rows, heads / kv_heads * of_kv_heads, of_kv_heads, size, value_size};
  }
};

// Bytes of workspace for all of it in one graph. cuDNN's deterministic backward keeps the gradients of the scores, (B,
// H, T, T) in bf16 with T rounded up to 64 and 128, of which d_q is a product of its own; with groups of heads d_k and
// d_v of each head of queries; and a number of each row and head. forge's lse by heads is another one. (cuDNN 9.14 on
// an H100; a MiB more, for its small needs.)
std::size_t cudnn_backward_bytes(const CudnnBackward& n);

// The largest part that fits: all, or some sequences, or one sequence's heads of some heads of keys. Parts divide what
// they are of. The least one where none fits.
CudnnBackward cudnn_part(const CudnnBackward& n, std::size_t workspace_bytes);

// Throws BadInput where the workspace of libraries is too small for the least part of the rank's attention.
void check_cudnn_workspace(const Deck& deck, const BufferContext& buffers);

}  // namespace forge

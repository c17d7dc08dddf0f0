#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// One transformer block, pre-norm:  h = x + attention(norm1(x));  out = h + feed_forward(norm2(h)).
// `slot` holds the microbatch (batch_buffers) and what the block keeps (saved_of_block).

// out(R,C): where the next block's input, or the head's, lives.
template <class T>
void block_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& slot,
                   View<T, 2> out);

// Recomputes what the recompute policy didn't save; `s` holds slot and recomputed_of_block.
template <class T>
void block_recompute(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s);

// B: dx(R,C) from d_out(R,C), and the gradients of the norms. `s`: slot, recomputed_of_block, gradients_of_block.
template <class T>
void block_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                          const BlockTensors<acc_t<T>>& g, const BufferSet& s, View<const T, 2> d_out, View<T, 2> dx);

// W: gradients of matrices and biases, from what B left in `s`; d_out as B had it.
template <class T>
void block_backward_weight(Context<T>& ctx, std::int64_t layer, const BlockTensors<acc_t<T>>& g, const BufferSet& s,
                           View<const T, 2> d_out);

}  // namespace forge

#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// The first half of a block: h = x + attention(norm1(x)), with queries, keys and values from one product of norm1(x).

// x → n1, q, k, v, o, h of `s`, which holds slot, recomputed_of_block and scratch_forward_block.
template <class T>
void attention_layer_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s);

// Recomputes what selective recomputation drops.
template <class T>
void attention_layer_recompute(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s);

// B: d_h → dx(S,C); leaves d_qkv.
template <class T>
void attention_layer_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                                    const BlockTensors<acc_t<T>>& g, const BufferSet& kept, View<T, 2> dx);

// W; `s` also holds scratch_backward_weight.
template <class T>
void attention_layer_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s);

}  // namespace forge

#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// The second half of a block with experts, from the normalised stream n2 on:
//   y(r) = Σ_c weight(r,c) · expert_choice(r,c)(n2(r)) + gate(r) · shared(n2(r))
// with expert(x) = down(silu(gate x) · up x); the weight enters before `down`, which is linear. Dropless dispatch runs
// in rounds of bounded size: the first one's rows stay for backward, which recomputes the others'.

// n2 → y(S,C). `s`: slot, recomputed_of_block, scratch_forward_block.
template <class T>
void moe_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s, View<T, 2> y);

// Recomputes what full recomputation dropped, up to the activations.
template <class T>
void moe_recompute(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s);
// The same of selective recomputation: activations from what stands before them.
template <class T>
void moe_activate(Context<T>& ctx, const BufferSet& s);

// B, and W of the experts, whose later rounds' rows exist only here: d_n2(S,C) from d_y(S,C), the gradient of y.
// `s` also holds scratch_backward_mlp; g.expert_up and g.expert_down are added to.
template <class T>
void moe_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                        const BlockTensors<acc_t<T>>& g, View<const T, 2> d_y, View<T, 2> d_n2, const BufferSet& s);

// W of the router and the shared experts; d_down(R,C): d_down_out as B left it, or d_y where the slot has none. `s`
// also holds scratch_backward_weight.
template <class T>
void moe_backward_weight(Context<T>& ctx, std::int64_t layer, const BlockTensors<acc_t<T>>& g, View<const T, 2> d_down,
                         const BufferSet& s);

}  // namespace forge

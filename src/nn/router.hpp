#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// The router of a layer with experts, on the rows of this rank's residual stream (model/moe_buffers.hpp names the
// buffers).

// n2(S,C) → choices and their weights. `counts`: adds the layer's losses, and the assignments of each expert before any
// were dropped, to the step's sums; not when a forward pass is recomputed.
template <class T>
void router_forward_layer(Context<T>& ctx, std::int64_t layer, View<const T, 2> w, const BufferSet& s, bool counts);

// B: d_n2(S,C) += from d_choice_weights(S,k) and the losses; leaves d_router.
template <class T>
void router_backward_input(Context<T>& ctx, std::int64_t layer, View<const T, 2> w, const BufferSet& s,
                           View<T, 2> d_n2);

// W.
template <class T>
void router_backward_weight(Context<T>& ctx, std::int64_t layer, View<acc_t<T>, 2> g, const BufferSet& s);

}  // namespace forge

#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// down(act(up(n2))): the feed-forward network of a dense block, or the experts that every token goes to. Works on n2,
// up and act of `s`.
template <class P>
struct MlpTensors {
  View<P, 2> up, down;
  View<P, 1> up_bias, down_bias;
};
template <class P>
MlpTensors<P> mlp_of(const BlockTensors<P>& t) {
  return {t.up, t.down, t.up_bias, t.down_bias};
}

// n2(S,C) → up, act
template <class T>
void mlp_forward_to_activation(Context<T>& ctx, const MlpTensors<const T>& w, const BufferSet& s);
// up → act, recomputed.
template <class T>
void mlp_activate(Context<T>& ctx, const BufferSet& s);
// act → y(S,C)
template <class T>
void mlp_forward_output(Context<T>& ctx, const MlpTensors<const T>& w, const BufferSet& s, View<T, 2> y);

// B: d_n2(S,C) from dy(R,C), the gradient of y on all tp ranks; leaves d_up in the place of up. `s` also holds
// scratch_backward_mlp.
template <class T>
void mlp_backward_input(Context<T>& ctx, const MlpTensors<const T>& w, View<const T, 2> dy, View<T, 2> d_n2,
                        const BufferSet& s);
// W; `s` also holds scratch_backward_weight.
template <class T>
void mlp_backward_weight(Context<T>& ctx, const MlpTensors<acc_t<T>>& g, View<const T, 2> dy, const BufferSet& s);

}  // namespace forge

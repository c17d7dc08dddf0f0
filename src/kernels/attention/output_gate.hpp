#pragma once

#include "core/types.hpp"
#include "core/view.hpp"
#include "device/stream.hpp"

namespace forge {

// Sigmoid gates of attention's output (Qiu et al. 2025, arXiv:2505.06708), from a projection in which each query head's
// D columns have its gate's D columns behind them; keys and values follow.

// x(R, 2 H D + more) → qkv(R, H D + more), gate(R, H D); D columns a head.
template <class T>
void split_gates(Stream&, View<const T, 2> x, std::int64_t head_dim, View<T, 2> qkv, View<T, 2> gate);
// … and gradients back.
template <class T>
void join_gates(Stream&, View<const T, 2> d_qkv, View<const T, 2> d_gate, std::int64_t head_dim, View<T, 2> d);
// y = o ⊙ σ(gate), (R, H D)
template <class T>
void gate_output(Stream&, View<const T, 2> o, View<const T, 2> gate, View<T, 2> y);
// dy → d_o = dy ⊙ σ(gate), in its place, and d_gate = dy ⊙ o ⊙ σ (1 − σ)
template <class T>
void gate_output_backward(Stream&, View<const T, 2> o, View<const T, 2> gate, View<T, 2> dy, View<T, 2> d_gate);

}  // namespace forge

#pragma once

#include "nn/attend.plan.hpp"

namespace forge {

// The pure half of nn/attention_layer.hpp.

void add_attention_parameters(UnitBuilder& unit);

template <class T>
struct AttentionBuffers : AttendBuffers<T> {
  View<T, 2> qkv;             // (R, (H + 2K) D)
  View<T, 2> qk;              // (R, (H + K) D)  normalised q and k (QK-norm only)
  View<acc_t<T>, 2> qk_rstd;  // (R, H + K)
  View<T, 2> d_qkv;           // (R, (H + 2K) D)

  void list(BufferLister& l);
  void list_gradients(BufferLister& l);
};

// Workspace of B.
template <class T>
struct AttentionScratch : AttendScratch<T> {
  void list(BufferLister& l);
};

}  // namespace forge

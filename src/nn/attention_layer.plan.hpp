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

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    this->list_norm(l);
    this->list_n1(l);
    l.save(qkv, "q, k, v", l.R, s.qkv_columns(), l.B);
    if (s.options.qk_norm) {
      l.save(qk, "normalised q, k", l.R, s.q_columns() + s.kv_columns(), l.B);
      l.save(qk_rstd, "QK-norm rstd", l.R, s.H() + s.K(), l.B);
    }
    this->list_outputs(l);
  }
  void list_gradients(BufferLister& l) {
    this->list_attend_gradients(l);
    l.add(d_qkv, "gradient of q, k, v", l.R, l.spec.qkv_columns(), l.W);
  }
};

// Workspace of B.
template <class T>
struct AttentionScratch : AttendScratch<T> {
  void list(BufferLister& l) {
    this->list_attend(l);
    this->list_d_n1(l);
    this->rows.list_partial(l, std::max(l.spec.C(), l.spec.D()));
    this->rows.list_rows(l);
  }
};

}  // namespace forge

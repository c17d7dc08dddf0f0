#pragma once

#include "nn/attend.plan.hpp"

namespace forge {

// The pure half of nn/latent_attention.hpp.

void add_latent_parameters(UnitBuilder& unit);

template <class T>
struct LatentBuffers : AttendBuffers<T> {  // n1 only with q_lora
  View<T, 2> q_down;                       // (S, q_lora)
  View<acc_t<T>, 1> q_down_rstd;           // (S)
  View<T, 2> kv_down;                      // (S, kv_lora + rope_dim)
  View<acc_t<T>, 1> kv_down_rstd;          // (S)
  View<T, 2> latents;    // (S, q_lora or C + kv_lora + rope_dim) input of q_up, normalised kv latent, rotated rope key
  View<T, 2> q, k, v;    // (R, H D), (R, H D), (R, H Dv)
  View<T, 2> d_q;        // (R, H D)
  View<T, 2> d_kv_up;    // (R, H (nope_dim + Dv))
  View<T, 2> d_latents;  // as latents: of the down-projections' outputs; without q_lora d_n1 stands first

  void list(BufferLister& l);
  void list_gradients(BufferLister& l);
};

// The latents of all tp ranks, or this rank's part of their gradient, (R, …); tp > 1 only.
template <class T>
struct AllLatents {
  View<T, 2> rows;

  void list(BufferLister& l) {
    if (l.c.tp > 1) l.add(rows, "latents of all tp ranks", l.R, l.spec.latent_columns());
  }
};

// Workspace of the up-projections, forward.
template <class T>
struct LatentForward {
  View<T, 2> kv_up;  // (R, H (nope_dim + Dv)) keys without their rope part, values
  AllLatents<T> all;

  void list(BufferLister& l);
};
// Workspace of B.
template <class T>
struct LatentBackward : AttendScratch<T> {  // d_n1 only with q_lora
  View<T, 2> d_k, d_v;
  AllLatents<T> all;

  void list(BufferLister& l);
};

}  // namespace forge

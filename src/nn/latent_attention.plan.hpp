#pragma once

#include "nn/attend.plan.hpp"

namespace forge {

// The pure half of nn/latent_attention.hpp.

template <class P>
struct LatentParameters : AttendParameters<P> {
  View<P, 2> q_up;          // (H D, q_lora), or (H D, C) without q_lora
  View<P, 2> kv_up;         // (H (nope_dim + Dv), kv_lora): each head's nope_dim rows, then its Dv rows
  View<P, 2> q_down;        // (q_lora, C)
  View<P, 1> q_down_norm;   // (q_lora)
  View<P, 2> kv_down;       // (kv_lora + rope_dim, C)
  View<P, 1> kv_down_norm;  // (kv_lora)
  LowRank<P> q_down_adapter, kv_down_adapter, q_up_adapter, kv_up_adapter;

  void list(ParameterLister& l);
};

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
  LowRows<T> q_down_low, kv_down_low, q_up_low, kv_up_low;
  View<T, 2> all_latents;  // (R, …) latents of all tp ranks, where recomputation keeps them

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    this->list_norm(l);
    if (s.q_lora() > 0) {
      this->list_n1(l);
      l.save(q_down, "q latent", l.S, s.q_lora(), l.B);
      l.save(q_down_rstd, "q latent rstd", l.S, 1, l.B);
    }
    l.save(kv_down, "kv latent, rope key", l.S, s.kv_down_columns(), l.B);
    l.save(kv_down_rstd, "kv latent rstd", l.S, 1, l.B);
    l.recompute(latents, Recompute::norms, "inputs of the up-projections", l.S, s.latent_columns(), l.W);
    l.recompute(q, Recompute::up_projections, "q", l.R, s.q_columns(), l.B);
    l.recompute(k, Recompute::up_projections, "k", l.R, s.kv_columns(), l.B);
    l.recompute(v, Recompute::up_projections, "v", l.R, s.v_columns(), l.B);
    each_low([&](LowRows<T>& low, BlockProduct product) { low.list(l, product); });
    this->list_outputs(l);
  }
  void list_gradients(BufferLister& l) {
    this->list_attend_gradients(l);
    l.add(d_q, "gradient of q", l.R, l.spec.q_columns(), l.W);
    l.add(d_kv_up, "gradient of keys and values, by head", l.R, l.spec.kv_up_columns(), l.W);
    l.add(d_latents, "gradient of the latents", l.S, l.spec.latent_columns(), l.W);
    each_low([&](LowRows<T>& low, BlockProduct product) { low.list_gradients(l, product); });
  }
  void list_gathered(BufferLister& l) {
    l.add(all_latents, "latents of all tp ranks, for W", l.R, l.spec.latent_columns(), l.W);
  }

 private:
  template <class F>
  void each_low(F f) {
    f(q_down_low, BlockProduct::q_down);
    f(kv_down_low, BlockProduct::kv_down);
    f(q_up_low, BlockProduct::q_up);
    f(kv_up_low, BlockProduct::kv_up);
  }
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

  void list(BufferLister& l) {
    l.add(kv_up, "keys and values, by head", l.R, l.spec.kv_up_columns());
    all.list(l);
  }
};
// Workspace of B.
template <class T>
struct LatentBackward : AttendScratch<T> {  // d_n1 only with q_lora
  View<T, 2> d_k, d_v;
  AllLatents<T> all;

  void list(BufferLister& l) {
    const ModelSpec& s = l.spec;
    this->list_attend(l);
    l.add(d_k, "gradient of k", l.R, s.kv_columns());
    l.add(d_v, "gradient of v", l.R, s.v_columns());
    this->rows.list_norm(l, std::max({s.C(), s.q_lora(), s.kv_lora()}));
    if (s.q_lora() > 0) this->list_d_n1(l);
    all.list(l);
  }
};

// How tp splits the projections; those down it doesn't.
struct LatentSplits {
  MatrixSplit q_down, kv_down, q_up, kv_up;
};
LatentSplits latent_splits(const ModelSpec& spec);

void list_latent_attention(Segments& list, std::int64_t layer, Pass pass);
// From the down-projections' outputs to the inputs of the up-projections, and from there to q, k and v; again where
// recomputation names them.
void list_latent_norms(Segments& list);
void list_latent_heads(Segments& list);

}  // namespace forge

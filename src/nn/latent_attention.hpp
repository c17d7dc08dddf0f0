#pragma once

#include "nn/buffer_set.hpp"
#include "nn/context.hpp"
#include "nn/tensors.hpp"

namespace forge {

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), the first half of a block as attention_layer.hpp is:
// h = x + attention(norm1(x)). With n = norm1(x), N = nope_dim and r = rope_dim:
//   c_q = rmsnorm(n W_q_downᵀ);  q(H, N + r) = c_q W_q_upᵀ, each head's last r entries rotated
//   [c, key] = n W_kv_downᵀ;  c_kv = rmsnorm(c);  [k(H, N), v(H, Dv)] = c_kv W_kv_upᵀ;  every head's key ends in the
//   rotated `key`
// Without q_lora, n is c_q. What stands left of an up-projection is replicated over tp and computed for this rank's S
// rows; one gather of the latents [c_q, c_kv, rotated key] serves both up-projections, whose rows tp splits by heads,
// and one reduce-scatter brings their gradients back. That holds without q_lora too: n travels beside the kv latent.
// The gradients of the down-projections and norms are sums over own rows: parallel/ adds those of the tp ranks.

// x → latents, q, k, v, o, h of `s`, which holds slot, recomputed_of_block and scratch_forward_block.
template <class T>
void latent_attention_forward(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w, const BufferSet& s);

// Recomputes what selective recomputation drops.
template <class T>
void latent_attention_recompute(Context<T>& ctx, const BlockTensors<const T>& w, const BufferSet& s);

// B: d_h → dx(S,C); leaves d_q, d_kv_up, d_latents.
template <class T>
void latent_attention_backward_input(Context<T>& ctx, std::int64_t layer, const BlockTensors<const T>& w,
                                     const BlockTensors<acc_t<T>>& g, const BufferSet& kept, View<T, 2> dx);

// W; `s` also holds scratch_backward_weight.
template <class T>
void latent_attention_backward_weight(Context<T>& ctx, const BlockTensors<acc_t<T>>& g, const BufferSet& s);

}  // namespace forge

#pragma once

#include "core/traffic.hpp"
#include "model/buffers.hpp"

namespace forge {

// What attention over context-parallel ranks (nn/context_attention.hpp) needs beside a block's own buffers, once while
// it runs; empty on one rank.
BufferList scratch_context_forward(const BufferContext&);
BufferList scratch_context_backward(const BufferContext&);

// What a rank sends over cp for one block's attention, once forward and once backward; empty on one rank. With R rows a
// rank, h and k heads as context_heads() says, P = D + Dv columns of a key and its value, e bytes of the compute type
// and a of the accumulation type:
//                forward                                     backward
//   ring         cp − 1 sends of R K P e                     as forward, and cp − 1 sends of R K P a
//   all_gather   (cp − 1) · R K P e                          as forward, and a reduce-scatter: (cp − 1) · R K P a
//   all_to_all   (cp − 1) · R (h D + k P) e of q, k, v       (cp − 1) · R (h + k) P e of q, k, v, d_o
//                (cp − 1) · R h Dv e of o                    (cp − 1) · R h a of delta
//                                                            (cp − 1) · R (h D + k P) e of d_q, d_k, d_v
std::vector<Sent> context_sends_forward(const BufferContext&);
std::vector<Sent> context_sends_backward(const BufferContext&);

// all_to_all: heads of q, and of k and v, that a rank works on for all rows. q = H/cp; its heads are those that follow
// head rank · q. Each run of gcd(q, H/K) of them reads one head of k and v: kv = q / gcd(q, H/K). That is K/cp where cp
// divides K, and 1, a copy, where K divides cp.
struct ContextHeads {
  std::int64_t q, kv;

  std::int64_t qkv_columns(const ModelSpec& s) const { return q * s.D() + kv * (s.D() + s.value_dim()); }
  std::int64_t o_columns(const ModelSpec& s) const { return q * s.value_dim(); }
};
// Throws where H doesn't divide by cp.
ContextHeads context_heads(const BufferContext&);

}  // namespace forge

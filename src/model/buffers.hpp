#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/array.hpp"
#include "core/short_list.hpp"
#include "core/types.hpp"
#include "model/optimizer_state.hpp"
#include "model/spec.hpp"

namespace forge {

// Every buffer that a step uses, by name and shape. nn/ allocates from these lists and from nothing else; plan/ sums
// them: that is why the planned peak is the arena's high-water mark, to the byte. R = rows of a microbatch on this
// rank; S = R / tp, those of the residual stream and the norms (sequence parallelism). H, K, F and V are this rank's.
enum class Buf {
  // batch
  tokens,
  labels,
  positions,
  documents,
  samples,
  token_order,     // (R)
  position_order,  // (S)
  key_positions,
  key_documents,  // (R cp) of all context-parallel ranks: by rank and then sequence; all_to_all: by sequence, then rank
  key_samples,    // (R cp) all_to_all only
  // block, forward
  x,  // (S, C)   the block's input: the residual stream
  mean1,
  rstd1,    // (S)      statistics of norm 1 (mean: LayerNorm only)
  n1,       // (S, C)   normalised input
  qkv,      // (R, (H + 2K) D)
  qk,       // (R, (H + K) D)  normalised q and k (QK-norm only)
  qk_rstd,  // (R, H + K)
  // multi-head latent attention, instead of qkv: model/latent_buffers.cpp
  q_down,        // (S, q_lora)
  q_down_rstd,   // (S)
  kv_down,       // (S, kv_lora + rope_dim)
  kv_down_rstd,  // (S)
  latents,       // (S, q_lora or C + kv_lora + rope_dim) input of q_up, normalised kv latent, rotated rope key
  all_latents,   // (R, …) those of all tp ranks, or this rank's part of their gradient
  kv_up,         // (R, H (nope_dim + Dv)) keys without their rope part, values
  q,             // (R, H D)
  k,             // (R, H D)
  v,             // (R, H Dv)
  // either kind of attention: Dv is D without latents
  o,    // (R, H Dv) attention's output
  lse,  // (R, H)
  h,    // (S, C)   residual stream after attention
  mean2,
  rstd2,
  n2,      // as above, of norm 2
  up,      // (R, 2F) gate and up, or (R, F)
  act,     // (R, F)
  branch,  // (S, C)   output of attention or feed-forward before it joins the residual stream
  // block, backward
  d_stream_a,
  d_stream_b,  // (S, C) gradient of the residual stream, above and below a block
  d_h,         // (S, C)
  d_qkv,       // (R, (H + 2K) D)
  d_q,
  d_k,
  d_v,
  d_kv_up,    // as forward
  d_latents,  // (S, …) gradients of the down-projections' outputs; without q_lora d_n1 stands first
  d_act,      // (R, F)
  d_norm,     // (S, C) gradient of a norm's output
  d_o,        // (R, H Dv)
  delta,      // (R, H)
  d_q_sums,   // (R, H D) fp32 sums of d_q (bf16 only)
  partial,    // (partial rows, columns) column sums
  // context parallelism: model/context_buffers.hpp
  kv_a,
  kv_b,      // (R, K (D + Dv)) keys and values of one rank, side by side; all_gather: kv_a has those of all
  sum_o,     // (R, H Dv) in the accumulation type: o of the keys seen so far (bf16 only)
  part_o,    // (R, H Dv) attention to one rank's keys
  part_lse,  // (R, H)
  part_d_q,
  part_d_kv,  // (R, H D), (R, K (D + Dv))
  sum_d_q,    // (R, H D) in the accumulation type (bf16 only)
  d_kv_a,
  d_kv_b,  // (R, K (D + Dv)) in the accumulation type; all_gather: d_kv_a has those of all
  packed_a,
  packed_b,  // (R cp, …) all_to_all: what is sent, received and worked on
  delta_a,
  delta_b,  // (R cp, H / cp) likewise
  // output gradients of the two output projections, all rows: where dropout or tensor parallelism makes them another
  // thing than the stream's gradient
  d_down_out,
  d_attention_out,  // (R, C)
  // experts: model/moe_buffers.hpp; N = rows of a round, P = places of this rank's assignments
  router_logits,
  router_scores,   // (S, E)
  choices,         // (S, k) experts
  kept_choices,    // (S, k) those that the capacity left, −1: dropped
  choice_weights,  // (S, k)
  balance,         // (scopes, 2E + 1) counts, sums of probabilities, rows
  balance_partial,
  router_z,            // (S)
  jittered,            // (S, C) the router's input
  shared_out,          // (S, C)
  shared_gate,         // (S)
  own_counts,          // (E)
  own_offsets,         // (E + 1)
  own_order,           // (S k)
  own_sort,            // workspace of moe_sort
  assignment_order,    // (P)
  assignment_place,    // (S, k)
  assignment_counts,   // (sources, E)
  assignment_offsets,  // (E + 1) of all sources' assignments in one order
  group_choices,
  group_weights,  // (S sources, k) of all sources
  group_rows,
  group_sums,          // (S sources, C)
  assignments,         // (P, C) rows of assignments, on their way there or back
  assignment_weights,  // (P)
  received,            // (N, C) rows by source and then by expert
  received_line,       // (N)
  received_blocks,     // (sources, E / ep) rows
  received_experts,    // (N)
  received_order,
  received_place,    // (N) to the order of experts and back
  received_counts,   // (E / ep)
  received_offsets,  // (E / ep + 1)
  received_sort,
  peer_rows,         // (N, C) what another etp rank made of the same rows
  peer_line,         // (N)
  received_weights,  // (N) by expert, like all that follows
  expert_in,         // (N, C)
  expert_up,         // (N, 2 Fe / etp) gate and up, then their gradient
  expert_act,        // (N, Fe / etp)
  expert_out,        // (N, C)
  all_choices,
  all_choice_weights,
  all_kept,  // (rows of all ranks of a sequence, k)
  tp_choices,
  tp_choice_weights,
  capacity_bins,
  capacity_place,
  capacity_order,
  capacity_counts,
  capacity_offsets,
  capacity_sort,       // workspace of capacity_drop
  d_router,            // (S, E)
  d_router_sums,       // (S, E) in the accumulation type (bf16 only)
  d_choice_weights,    // (S, k)
  d_expert,            // (N, C) of the experts' output, then of their input
  d_expert_act,        // (N, Fe / etp)
  d_received_weights,  // (N)
  d_branch,            // (S, C) gradient of the layer's output before dropout
  d_shared_gate,       // (S)
  // tensor parallelism
  all_rows,     // (R, C) gathered rows, or this rank's part of a sum over tp
  d_head_rows,  // (R, C) this rank's part of the gradient of the final norm's output
  token_stats,  // (tp chunk, 3) of the vocabulary-parallel loss
  // head
  x_final,
  mean_final,
  rstd_final,
  d_n_final,  // (S, C), (S), (S), (S, C)
  n_final,    // (S, C)
  logits,     // (chunk, V) in the accumulation type
  d_logits,   // (chunk, V) in the compute type, where that differs
  row_loss,
  row_z,  // (chunk)
  // multi-token prediction: model/mtp_buffers.hpp
  mtp_embedding,  // (S, C)
  mtp_embedding_rstd,
  mtp_hidden_rstd,  // (S)
  mtp_in,           // (S, 2C) normalised embedding and hidden state, side by side
  d_mtp_in,         // (S, 2C)
  d_mtp_block,      // (S, C) gradient of the module's block's input
  // for the whole run
  cosine,
  sine,               // (T, rotary entries of a head / 2)
  scalars,            // StepScalars of kernels.hpp
  norm_partials,      // sum_partials
  row_scopes,         // (R) sequence of each row of a microbatch
  all_row_scopes,     // (R cp) the same of the rows of all cp ranks, rank after rank
  all_row_positions,  // (R cp) and their positions
  zero_scopes,        // (R) zeros: all rows in one scope
  router_sums,     // (layers, E + 3) of a step: assignments of each expert; auxiliary loss, z-loss, dropped assignments
  router_dropped,  // (layers) dropped assignments of this rank
  router_bias,     // (layers, E)
  mtp_sums,        // (mtp_depth, 2) of a step: losses, z
  count_,
};
inline constexpr int buffer_count = static_cast<int>(Buf::count_);

// The last use of a buffer that outlives the forward pass: backward for inputs (B) or for weights (W).
enum class Reader { forward, backward_input, backward_weight };

struct BufferSpec {
  Buf id;
  std::string_view name;
  Array<std::int64_t, 2> extents;
  DType dtype;
  Reader last_reader;

  std::size_t bytes() const { return static_cast<std::size_t>(extents[0] * extents[1]) * size_of(dtype); }
};
// Made anew wherever a layer works: no memory is asked for.
using BufferList = ShortList<BufferSpec, 64>;

// Arena bytes of a list: each buffer rounded up.
std::size_t aligned_bytes(const BufferList& list);

// What one microbatch on one rank looks like.
struct Microbatch {
  std::int64_t sequences = 1;        // b
  std::int64_t sequence_tokens = 1;  // T
  int cp = 1;                        // context-parallel ranks: each has T / cp tokens of every sequence

  std::int64_t local_tokens() const { return sequence_tokens / cp; }
  std::int64_t rows() const { return sequences * local_tokens(); }          // R, of this rank
  std::int64_t rows_of_all() const { return sequences * sequence_tokens; }  // of all cp ranks
};

// All that shapes the buffers of a rank.
struct BufferContext {
  ModelSpec spec;  // of this rank: its heads, feed-forward columns and vocabulary rows (layout/local_units.hpp)
  Microbatch microbatch;
  Precision precision;
  Recompute recompute = Recompute::none;
  std::int64_t head_chunk_rows = 0;  // resolved: 1 … R
  int tp = 1;
  CpMethod cp_method = CpMethod::ring;
  int ep = 1, etp = 1;
  OptimizerState optimizer{};

  // Rows of the residual stream and the norms on this rank (sequence parallelism).
  std::int64_t stream_rows() const { return microbatch.rows() / tp; }
};

// Rows of a head chunk where the deck says 0: about 16 Mi logits at a time, a multiple of 64, at most R.
std::int64_t resolve_head_chunk(std::int64_t wanted, std::int64_t rows, std::int64_t vocabulary);

// The types of a deck's run.
Precision precision_of(const Deck& deck);
// The context of a resolved deck; `local`: the model as a tensor-parallel rank computes it.
BufferContext buffer_context(const Deck& deck, const ModelSpec& local);

// Layers differ: those with experts, and those without. Per slot, that is, per microbatch in flight:
BufferList batch_buffers(const BufferContext&);
BufferList block_input(const BufferContext&);                         // x, from forward (or its arrival) until backward
BufferList saved_of_block(const BufferContext&, std::int64_t layer);  // the rest, from forward until their last reader
BufferList head_input(const BufferContext&);                          // x_final
BufferList saved_of_head(const BufferContext&);
BufferList head_output(const BufferContext&);  // n_final: while the head runs forward, or as long where MTP reads it
// Per block, while it runs forward, and again while it runs backward: what recompute doesn't keep.
BufferList recomputed_of_block(const BufferContext&, std::int64_t layer);
BufferList scratch_forward_block(const BufferContext&, std::int64_t layer);
// Output gradients that W reads; live while a block runs B and W.
BufferList gradients_of_block(const BufferContext&, std::int64_t layer);
BufferList gradient_stream(const BufferContext&);  // once per backward of a chunk
BufferList output_gradient(
    const BufferContext&);  // of a chunk or block that W needs later, or another rank: d_stream_a
// Within a block's forward pass, before attention itself: latent attention's up-projections.
BufferList scratch_forward_latents(const BufferContext&);
BufferList scratch_backward_mlp(const BufferContext&, std::int64_t layer);
BufferList scratch_backward_attention(const BufferContext&);
BufferList scratch_backward_weight(const BufferContext&, std::int64_t layer);
BufferList scratch_embedding(const BufferContext&);  // forward and backward
BufferList scratch_head_forward(const BufferContext&);
BufferList scratch_head_backward(const BufferContext&);
// Once per rank:
BufferList run_buffers(const BufferContext&);

}  // namespace forge

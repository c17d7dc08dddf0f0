#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/to_size.hpp"
#include "model/spec.hpp"

namespace forge {

// What a parameter is to its layer. Matrices are (out, in); the parts of one fused product follow each other without a
// gap: q, k, v are one matrix of qkv_columns rows, gate and up one of up_columns rows. A unit's parameters stand in
// this order.
enum class Role {
  token_table,
  position_table,
  expert_up,    // (E, 2Fe, C): of each expert gate above up
  expert_down,  // (E, C, Fe)
  // A block: matrices that tp splits
  q_up,   // (H (nope_dim + rope_dim), q_lora), or (…, C) without q_lora
  kv_up,  // (H (nope_dim + value_dim), kv_lora): each head's nope_dim rows, then its value_dim rows
  qkv,
  attention_out,
  up,
  down,
  shared_up,    // (2Fs, C) of the shared experts
  shared_down,  // (C, Fs)
  // matrices that every tp rank has whole
  q_down,          // (q_lora, C)
  kv_down,         // (kv_lora + rope_dim, C)
  router,          // (E, C)
  mtp_projection,  // (C, 2C): of [normalised embedding, normalised hidden state]
  // vectors, likewise
  attention_out_bias,
  down_bias,
  norm1,
  norm1_bias,
  norm2,
  norm2_bias,
  q_norm,
  k_norm,
  q_down_norm,   // (q_lora)
  kv_down_norm,  // (kv_lora)
  shared_gate,   // (1, C)
  mtp_embedding_norm,
  mtp_hidden_norm,
  mtp_norm,  // before the head
  // vectors that tp splits
  qkv_bias,
  up_bias,
  final_norm,
  final_norm_bias,
  output,
};
inline constexpr std::size_t role_count = to_size(Role::output) + 1;

enum class Initial { zeros, ones, normal };

// How ranks share a tensor's rows or columns: of dense units those of tp, of experts those of etp. Each has a piece of
// whole granules; where the granules don't divide, the last pieces end early, or are empty.
struct Split {
  int dim = 0;               // 0: rows, 1: columns
  std::int64_t granule = 1;  // rows or columns of a head
  bool copies = false;       // of fewer granules than ranks each has one, together with its neighbours
  std::int64_t begin = 0;    // where the rows or columns begin that are shared so, …
  std::int64_t extent = 0;   // … and their number; 0: up to the end
};

// One tensor of the checkpoint.
struct Parameter {
  std::string name;            // forge's own, stable: the key of its initial values, and of checkpoints
  std::string hf_name;         // in the family's Hugging Face checkpoints
  bool hf_transposed = false;  // stored (in, out) there
  Role role;
  std::vector<std::int64_t> shape;
  std::vector<Split> split;  // of one part after the other; empty: every tp rank holds the whole tensor
  std::int64_t expert = -1;  // of an expert: its number
  // Whether its gradient is taken with B, without a product of its own, and summed over the step where it is.
  bool is_vector = false;
  Initial initial = Initial::zeros;
  double std = 0;  // of Initial::normal

  std::int64_t elements() const;
  // Weight decay follows the rank of the checkpoint's tensor.
  bool decays() const { return shape.size() >= 2; }
};

enum class UnitKind { token_table, position_table, block, experts, output, final_norm };
std::string_view name_of(UnitKind kind);

// Parameters that are gathered, reduced and updated together. How a rank lays them out: layout/local_units.hpp.
struct Unit {
  UnitKind kind;
  std::int64_t layer = -1;  // of a block or its experts
  std::string name;
  std::vector<Parameter> parameters;
};

// A router's bias (E): chooses experts, has no gradient, and is no parameter of the optimizer.
struct RouterBias {
  std::int64_t layer;
  std::string name, hf_name;
};

// Tensors without padding: what "a model of N parameters" counts. A tied matrix counts once.
std::int64_t parameter_count(const std::vector<Unit>& units);

// Value of an element of a parameter at the start: the same on any layout.
double initial_value(std::uint64_t seed, const Parameter& parameter, std::int64_t element);

}  // namespace forge

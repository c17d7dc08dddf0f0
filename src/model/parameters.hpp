#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/spec.hpp"

namespace forge {

// What a parameter is to its layer. Matrices are (out, in); the parts of one fused product follow each other without a
// gap: q, k, v are one matrix of qkv_columns rows, gate and up one of up_columns rows.
enum class Role {
  token_table,
  position_table,
  qkv,
  attention_out,
  up,
  down,  // matrices
  norm1,
  norm1_bias,
  norm2,
  norm2_bias,
  q_norm,
  k_norm,
  qkv_bias,
  attention_out_bias,
  up_bias,
  down_bias,
  final_norm,
  final_norm_bias,
  output,
};

enum class Initial { zeros, ones, normal };

// One tensor of the checkpoint.
struct Parameter {
  std::string name;            // forge's own, stable: the key of its initial values, and of checkpoints
  std::string hf_name;         // in the family's Hugging Face checkpoints
  bool hf_transposed = false;  // stored (in, out) there
  Role role;
  std::vector<std::int64_t> shape;
  Initial initial = Initial::zeros;
  double std = 0;           // of Initial::normal
  std::int64_t offset = 0;  // of its first element in the unit's flat buffer

  std::int64_t elements() const;
  // Weight decay follows the rank of the checkpoint's tensor.
  bool decays() const { return shape.size() >= 2; }
};

enum class UnitKind { embedding, block, head };

// Parameters that are gathered, reduced and updated together, in one flat buffer. A group (the tensors of one Role)
// starts at a multiple of unit_alignment elements; the gaps hold zeros and stay zero.
struct Unit {
  UnitKind kind;
  std::int64_t layer = -1;  // of a block
  std::string name;
  std::vector<Parameter> parameters;
  std::int64_t elements = 0;  // of the flat buffer, padding included
};
inline constexpr std::int64_t unit_alignment = 64;

// All units in the order of the forward pass: embedding, blocks, head. A tied output matrix is the embedding's table.
std::vector<Unit> parameter_units(const ModelSpec& spec);

// Offset of the first tensor of a role in its unit, −1 when it has none.
std::int64_t role_offset(const Unit& unit, Role role);

// Tensors without padding: what "a model of N parameters" counts. A tied matrix counts once.
std::int64_t parameter_count(const std::vector<Unit>& units);

// Value of an element of a parameter at the start: the same on any layout.
double initial_value(std::uint64_t seed, const Parameter& parameter, std::int64_t element);

}  // namespace forge

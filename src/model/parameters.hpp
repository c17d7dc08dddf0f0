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
  double std = 0;  // of Initial::normal

  std::int64_t elements() const;
  // Weight decay follows the rank of the checkpoint's tensor.
  bool decays() const { return shape.size() >= 2; }
};

enum class UnitKind { token_table, position_table, block, output, final_norm };

// Parameters that are gathered, reduced and updated together. How a rank lays them out: layout/local_units.hpp.
struct Unit {
  UnitKind kind;
  std::int64_t layer = -1;  // of a block
  std::string name;
  std::vector<Parameter> parameters;
};

// All units in the order of the forward pass: token table, learned positions, blocks, output matrix, final norm. A tied
// output matrix is the token table. Within a block: matrices, then vectors, those that tensor parallelism splits first.
std::vector<Unit> parameter_units(const ModelSpec& spec);

// Tensors without padding: what "a model of N parameters" counts. A tied matrix counts once.
std::int64_t parameter_count(const std::vector<Unit>& units);

// Value of an element of a parameter at the start: the same on any layout.
double initial_value(std::uint64_t seed, const Parameter& parameter, std::int64_t element);

}  // namespace forge

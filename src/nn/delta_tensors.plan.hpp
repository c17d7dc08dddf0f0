#pragma once

#include <string_view>

#include "model/parameter_lister.hpp"

namespace forge {

// q's heads, k's and v's one behind the other, `times` numbers for each row of a projection.
Splits split_delta_heads(const ModelDeck& model, std::int64_t times = 1);

// A tensor of those that make the input of a layer of gated DeltaNet, as the family's checkpoints have them: q, k, v,
// the gate z, b and a, one behind the other.
struct DeltaTensor {
  std::string_view name, hf;  // "delta.z", "in_proj_z"
  std::int64_t rows;
  Splits split;
  std::int64_t groups = 0;  // Parameter::hf_groups
};
ShortList<DeltaTensor, 4> delta_tensors(const ModelSpec& spec);

}  // namespace forge

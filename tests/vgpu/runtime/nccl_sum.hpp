#pragma once

#include <cstddef>
#include <vector>

#include "nccl.h"

namespace vgpu {

// to(i) = Σ (ncclSum) or the largest (ncclMax) over ranks of inputs[rank](begin + i), i < count, in the order of a ring
// that ends with the rank `owner`: one after another, each sum rounded to the type.
void reduce_ranks(ncclRedOp_t operation, ncclDataType_t type, const std::vector<const char*>& inputs, std::size_t owner,
                  std::size_t begin, std::size_t count, char* to);
bool can_sum(ncclDataType_t type);

}  // namespace vgpu

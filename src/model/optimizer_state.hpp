#pragma once

#include <string_view>

#include "core/short_list.hpp"
#include "core/types.hpp"

namespace forge {

// What an optimizer keeps of every element that a rank updates, beside the weight. Each declares its own (optim/):
// layout/unit_buffers and parallel/storage lay it out, plan/memory adds it up, checkpoints save it, the optimizer reads
// it by its place in the list.
struct StateBuffer {
  std::string_view name;  // the group of its tensors in a checkpoint
  DType type;
};
using OptimizerState = ShortList<StateBuffer, 4>;

}  // namespace forge

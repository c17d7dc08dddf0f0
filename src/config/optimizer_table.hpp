#pragma once

#include <array>
#include <cstddef>

#include "core/to_size.hpp"

// The deck's optimizers, and what each keeps of every weight. A new one stands here, in a file of its own in optim/,
// and in the table of optim/rule.hpp.

namespace forge {

enum class OptimizerName : int { adamw };

struct OptimizerRow {
  const char* word;
  // Groups of its tensors in checkpoints, in the type of optimizer.moments; at most four.
  std::array<const char*, 4> state;
};

// In the order of the enumerators.
inline constexpr std::array optimizer_table{OptimizerRow{"adamw", {"first_moment", "second_moment"}}};
constexpr const OptimizerRow& row_of(OptimizerName name) {
  return optimizer_table[to_size(name)];
}

}  // namespace forge

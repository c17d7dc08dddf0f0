#pragma once

#include <array>
#include <cstddef>

#include "core/to_size.hpp"

// The deck's optimizers, and what each keeps of every weight. A new one stands here, in a file of its own in optim/,
// and in the table of optim/rule.hpp.

namespace forge {

enum class OptimizerName : int { adamw, lion, sgd, schedule_free, muon, normuon };

struct OptimizerRow {
  const char* word;
  // Groups of its tensors in checkpoints, in the type of optimizer.moments; at most four.
  std::array<const char*, 4> state;
  // The deck's keys that not every optimizer reads: any other of them is refused.
  std::array<const char*, 6> keys;
  // The weights to use are averages of those that are trained: what validation, saving and export see. The second group
  // of its state is what they are made of (optim/schedule_free.cpp); the rate is constant behind warm-up.
  bool averages = false;
  // An update needs the whole matrix (layout/whole_matrices.hpp). Tables, the output matrix and vectors have AdamW.
  bool whole_matrices = false;
  // Group of tensors in checkpoints: a number for each row of a matrix that is updated whole, which its owner keeps.
  const char* of_rows = nullptr;
};

// In the order of the enumerators.
inline constexpr std::array optimizer_table{
    OptimizerRow{"adamw", {"first_moment", "second_moment"}, {"beta1", "beta2", "epsilon", "moments"}},
    OptimizerRow{"lion", {"first_moment"}, {"beta1", "beta2", "moments"}},
    OptimizerRow{"sgd", {"momentum"}, {"momentum", "moments"}},
    OptimizerRow{"schedule_free", {"second_moment", "lead"}, {"beta1", "beta2", "epsilon"}, true},
    OptimizerRow{"muon",
                 {"momentum"},
                 {"muon_scale", "adam_learning_rate", "beta1", "beta2", "epsilon", "moments"},
                 false,
                 true},
    OptimizerRow{"normuon",
                 {"momentum"},
                 {"adam_learning_rate", "beta1", "beta2", "epsilon", "moments"},
                 false,
                 true,
                 "second_moment_of_rows"}};
constexpr const OptimizerRow& row_of(OptimizerName name) {
  return optimizer_table[to_size(name)];
}

}  // namespace forge

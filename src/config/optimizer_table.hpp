#pragma once

#include <array>
#include <cstddef>

#include "core/to_size.hpp"

// The deck's optimizers, and what each keeps of every weight. A new one stands here, in a file of its own in optim/,
// and in the table of optim/rule.hpp.

namespace forge {

enum class OptimizerName : int { adamw, lion, sgd, schedule_free, muon, normuon, adafactor, soap };

struct OptimizerRow {
  const char* word;
  // Groups of its tensors in checkpoints, in the type of optimizer.moments; at most four.
  std::array<const char*, 4> state;
  // The deck's keys that not every optimizer reads: any other of them is refused.
  std::array<const char*, 8> keys;
  // The weights to use are averages of those that are trained: what validation, saving and export see. The second group
  // of its state is what they are made of (optim/schedule_free.cpp); the rate is constant behind warm-up.
  bool averages = false;
  // An update needs the whole matrix (layout/whole_matrices.hpp). Tables, the output matrix and vectors have AdamW.
  bool whole_matrices = false;
  // Groups of tensors in checkpoints: second moments of a matrix's rows, and of its columns. Where matrices are updated
  // whole, their owners keep them; else second moments are a row's times a column's, and `state` is kept of vectors
  // (layout/factored_moments.hpp).
  const char *of_rows = nullptr, *of_columns = nullptr;
  // Owners of whole matrices keep all that is kept of them (layout/rotated_state.hpp), and `state` is empty.
  bool rotates = false;

  // Ranks that hold parts of a matrix work on its update together.
  constexpr bool shares_matrices() const { return whole_matrices || factored(); }
  constexpr bool factored() const { return of_columns != nullptr; }
};

// In the order of the enumerators.
inline constexpr std::array optimizer_table{
    OptimizerRow{"adamw",
                 {"first_moment", "second_moment"},
                 {"beta1", "beta2", "epsilon", "moments", "master_weights", "gradients"}},
    OptimizerRow{"lion", {"first_moment"}, {"beta1", "beta2", "moments", "master_weights", "gradients"}},
    OptimizerRow{"sgd", {"momentum"}, {"momentum", "moments", "master_weights", "gradients"}},
    OptimizerRow{"schedule_free", {"second_moment", "lead"}, {"beta1", "beta2", "epsilon"}, true},
    OptimizerRow{
        "muon",
        {"momentum"},
        {"muon_scale", "adam_learning_rate", "beta1", "beta2", "epsilon", "moments", "master_weights", "gradients"},
        false,
        true},
    OptimizerRow{"normuon",
                 {"momentum"},
                 {"adam_learning_rate", "beta1", "beta2", "epsilon", "moments", "master_weights", "gradients"},
                 false,
                 true,
                 "second_moment_of_rows"},
    OptimizerRow{"adafactor", {"second_moment"}, {}, false, false, "second_moment_of_rows", "second_moment_of_columns"},
    OptimizerRow{"soap",
                 {},
                 {"adam_learning_rate", "beta1", "beta2", "epsilon", "soap_basis_every_steps", "soap_largest_side",
                  "master_weights", "gradients"},
                 false,
                 true,
                 nullptr,
                 nullptr,
                 true}};
constexpr const OptimizerRow& row_of(OptimizerName name) {
  return optimizer_table[to_size(name)];
}

// torch.optim has these, and names for what they keep (checkpoint/torch_optimizer.hpp).
constexpr bool in_torch(OptimizerName name) {
  return name == OptimizerName::adamw || name == OptimizerName::sgd || name == OptimizerName::muon ||
         name == OptimizerName::adafactor;
}
inline constexpr const char* torch_optimizers = "adamw, sgd, muon, adafactor";

}  // namespace forge

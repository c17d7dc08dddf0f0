#pragma once

#include <cstddef>

namespace forge {

// The weights that a state is kept of: all, matrices that are updated whole, the others beside them, or vectors.
enum class KeptOf { all, whole_matrices, others, vectors };

// The numbers of a state for a matrix (m, n): (m, n), (m), (n), (m, m) or (n, n). Vectors have `whole` alone. A side
// longer than optimizer.soap_largest_side has no square.
enum class StateShape { whole, rows, columns, square_of_rows, square_of_columns };

// Who keeps a state: the rank that updates an element (parallel/storage); the rank that computes the update of a whole
// matrix (layout/matrix_state.hpp); or all ranks that hold parts of a matrix (layout/factored_moments.hpp).
enum class StateOwner { shards, matrix_owner, sharers };

// The type of a state: optimizer.moments, and where that is bf16, rounded stochastically by the state's place among
// those that the element has; or the accumulation type.
enum class StoredAs { moments, accumulation };

// A state of an optimizer. Storage, planned memory and time, checkpoints and PyTorch's files follow from the list of
// them (config/optimizer_table.hpp).
struct StateSpec {
  const char* name = nullptr;  // the group of its tensors in checkpoints
  KeptOf of = KeptOf::all;
  StateShape shape = StateShape::whole;
  StateOwner owner = StateOwner::shards;
  StoredAs type = StoredAs::moments;
  const char* suffix = "";      // of its tensors' names
  const char* torch = nullptr;  // torch.optim's key; null: it has none

  constexpr bool is_line() const { return shape == StateShape::rows || shape == StateShape::columns; }
};

// The most states of an optimizer.
inline constexpr std::size_t most_states = 8;

}  // namespace forge

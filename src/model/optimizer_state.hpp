#pragma once

#include <string_view>

#include "config/deck.hpp"
#include "core/short_list.hpp"
#include "core/types.hpp"

namespace forge {

// What a buffer is kept of: of all elements, of those of matrices that are updated whole, of the others beside them, of
// vectors; or of rows and columns of matrices, or of whole matrices by their owners (layout/whole_matrices.hpp,
// factored_moments.hpp, rotated_state.hpp).
enum class KeptOf { all, whole_matrices, others, vectors, lines };

// What an optimizer keeps of every element that a rank updates, beside the weight: layout/unit_buffers and
// parallel/storage lay it out, plan/memory adds it up, checkpoints save it, the optimizer reads it by its place in the
// list.
struct StateBuffer {
  std::string_view name;  // the group of its tensors in a checkpoint
  DType type;
  KeptOf of = KeptOf::all;
  bool averages = false;  // of an optimizer whose weights to use are averages of those that are trained
};
using OptimizerState = ShortList<StateBuffer, 4>;

// Whether anything is kept that isn't of elements.
inline bool keeps_lines(const OptimizerState& state) {
  for (const StateBuffer& buffer : state)
    if (buffer.of == KeptOf::lines) return true;
  return false;
}

// That of the deck's optimizer; `standard`: the type where the deck doesn't name another.
OptimizerState optimizer_state(const OptimizerDeck& deck, DType standard);

}  // namespace forge

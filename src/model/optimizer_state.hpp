#pragma once

#include <string_view>

#include "config/deck.hpp"
#include "config/state_spec.hpp"
#include "core/short_list.hpp"
#include "core/types.hpp"

namespace forge {

// The states of an optimizer, beside the weights. Of shards' states, layout/unit_buffers and parallel/storage lay out a
// number for every element that a rank updates, plan/memory adds it up, checkpoints save it, the optimizer reads it by
// its place in the list.
struct StateBuffer {
  std::string_view name;  // the group of its tensors in a checkpoint
  DType type;
  KeptOf of = KeptOf::all;
  StateOwner owner = StateOwner::shards;
  bool averages = false;  // of an optimizer whose weights to use are averages of the trained ones

  bool is_of_elements() const { return owner == StateOwner::shards; }
};
using OptimizerState = ShortList<StateBuffer, most_states>;

// Whether the optimizer has states of matrices, not of elements (LineMoments).
inline bool keeps_of_matrices(const OptimizerState& state) {
  return !state.empty() && !state.back().is_of_elements();
}

// The states of the deck's optimizer; `standard`: the type where the deck doesn't name another.
OptimizerState optimizer_state(const OptimizerDeck& deck, DType standard);

}  // namespace forge

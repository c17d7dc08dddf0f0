#pragma once

#include <string_view>

#include "config/deck.hpp"
#include "config/optimizer_table.hpp"
#include "core/short_list.hpp"
#include "core/types.hpp"

namespace forge {

// What an optimizer keeps of every element that a rank updates, beside the weight: layout/unit_buffers and
// parallel/storage lay it out, plan/memory adds it up, checkpoints save it, the optimizer reads it by its place in the
// list.
struct StateBuffer {
  std::string_view name;  // the group of its tensors in a checkpoint
  DType type;
};
using OptimizerState = ShortList<StateBuffer, 4>;

// That of the deck's optimizer; `standard`: the type where the deck doesn't name another.
inline OptimizerState optimizer_state(const OptimizerDeck& deck, DType standard) {
  OptimizerState state;
  for (const char* name : row_of(deck.name).state)
    if (name) state.push_back({name, deck.moments == MomentType::bf16 ? DType::bf16 : standard});
  return state;
}

}  // namespace forge

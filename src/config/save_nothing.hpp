#pragma once

#include <utility>

#include "config/deck.hpp"

namespace forge {

// checkpoint.directory: none stands for the whole section, but for where the initial values come from, and for the
// model that is written at the end.
inline void save_nothing_where_none(Deck& deck) {
  if (deck.checkpoint.directory != "none") return;
  CheckpointDeck nothing;
  nothing.model_from = deck.checkpoint.model_from;
  nothing.optimizer_from = deck.checkpoint.optimizer_from;
  nothing.reset_optimizer = deck.checkpoint.reset_optimizer;
  deck.checkpoint = std::move(nothing);
  deck.output.save_hf = false;
}

}  // namespace forge

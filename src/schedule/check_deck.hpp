#pragma once

#include "config/deck.hpp"
#include "config/read.hpp"

namespace forge {

// Completes a deck and holds it against the number of ranks: what check_values (config/check.hpp) and, for training,
// check_layout (layout/check_layout.hpp) say, and the rules of schedule and split. Afterwards no value is left that
// means "derive it", and the deck passes again as it is. Throws one BadInput for everything that is wrong, each with
// the values, the equation they violate, and the nearest legal values. Allocates nothing and asks no other rank.
void check_deck(Deck& deck, int world_size, Needs needs = Needs::training);

}  // namespace forge

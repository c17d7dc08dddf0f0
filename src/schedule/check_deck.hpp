#pragma once

#include "config/deck.hpp"
#include "config/read.hpp"

namespace forge {

// Completes a deck and checks it for the number of ranks: by check_values (config/check.hpp) and, for training,
// check_layout (layout/check_layout.hpp), and by the rules of schedule and split. Afterwards no value is left that
// means "derive it", and the deck passes again as it is. Throws one BadInput for all errors, each with the values, the
// equation they violate, and the nearest legal values. Allocates nothing and asks no other rank.
void check_deck(Deck& deck, int world_size, Needs needs = Needs::training);

}  // namespace forge

#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge {

// A resolved deck as YAML with those keys alone that a deck needs to resolve to it again, on so many ranks: no
// defaults, no values that follow from others or stand in model.hf.
std::string short_deck(const Deck& deck, int ranks);

}  // namespace forge

#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge {

// A resolved deck as YAML with those keys alone that a deck needs to resolve to it again, on so many ranks: not the
// defaults, nor what follows from others or stands in model.hf.
std::string short_deck(const Deck& deck, int ranks);

}  // namespace forge

#pragma once

#include <string>

#include "config/deck.hpp"

namespace forge::test {

// A layout whose passes run in pairs (train.overlap): what stands in their way is changed.
Deck in_pairs(Deck deck);

// "" where such a layout gives the bits that it has without pairs: gradients, and two steps of training (the deck's),
// with the planned memory to the byte.
std::string equals_passes_alone(const Deck& deck);

}  // namespace forge::test

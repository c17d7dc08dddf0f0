#pragma once

#include "comm/world.hpp"
#include "config/deck.hpp"
#include "train/trainer.hpp"

namespace forge {

// All ranks. Throws BadInput on every one where ranks don't have the same program, environment, deck with its schedule
// file, or weights that the deck starts from (names and sizes of files, and bytes drawn from them).
void agree_on_start(const Deck& deck, const World& world);
// The facts that determine a trained model's numbers, in short: keys of the deck, and names, sizes and drawn bytes or
// times of the files that the parameters come from. Of one rank.
std::string model_fingerprint(const Deck& deck);
// Like agree_on_start(), for the token files: sizes and drawn contents.
void agree_on_data(const TrainingData& data, const RunSetup& setup, const World& world);

}  // namespace forge

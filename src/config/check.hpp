#pragma once

#include "config/deck.hpp"
#include "config/read.hpp"

namespace forge {

// Completes a deck and holds it against the number of ranks. Reads model.hf's config.json where the deck has one; then
// resolves model.kv_heads and head_dim, and, for training, mesh.dp_shard and etp and optimizer.decay_steps, so that no
// value is left that means "derive it". Throws one BadInput for everything that is wrong, each with the values, the
// equation they violate, and the nearest legal values; what this version doesn't have is refused by key. Allocates
// nothing and asks no other rank.
void check_deck(Deck& deck, int world_size, Needs needs = Needs::training);

}  // namespace forge

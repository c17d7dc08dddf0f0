#pragma once

#include <functional>
#include <vector>

#include "config/deck.hpp"

namespace forge::test {

// Every way to write n as pp x dp_replicate x dp_shard x cp x tp.
std::vector<MeshDeck> meshes_of(int ranks);

// What a layout chooses beside the mesh.
struct Choice {
  std::int64_t zero_stage;
  Accumulation accumulate;
  GatherPolicy gather;
  Recompute recompute;
  ScheduleName schedule;
  std::int64_t chunks;
};
std::vector<Choice> choices_of(const MeshDeck& mesh);

// The deck of a model on a mesh with a choice; `number` varies what isn't enumerated (method of cp, split, microbatch).
Deck layout_deck(Deck deck, const MeshDeck& mesh, const Choice& choice, std::size_t number);

// Completes the deck for its number of ranks; false where a rule forbids it.
bool is_legal(Deck& deck);

}  // namespace forge::test

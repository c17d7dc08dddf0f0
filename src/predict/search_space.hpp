#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace forge {

// The meshes of a model on `ranks` ranks whose groups divide the tensors and rows that they split: pp, dp_replicate,
// dp_shard, cp, tp, ep and etp (docs/parallelism.md). Shards take whole nodes before replicas begin. `resolved`: a deck
// that check_deck has completed.
std::vector<MeshDeck> meshes_of(const Deck& resolved, int ranks, int ranks_per_node);

// The choices beside the mesh.
struct Choice {
  ScheduleName schedule;
  std::int64_t chunks, microbatch, zero_stage;
  Recompute recompute;
  DispatchMethod dispatch;
  Overlap overlap;
};
// The choices whose numbers divide.
std::vector<Choice> choices_of(const Deck& resolved, const MeshDeck& mesh);

// The deck with a mesh and a choice; check_deck says whether it is legal.
Deck with_choice(const Deck& resolved, const MeshDeck& mesh, const Choice& choice);

// Gives a copy of the deck, which may have had another one, a choice.
void set_choice(Deck& deck, const Deck& resolved, const Choice& choice);

// Options that give a deck a layout of one rank that every choice of the search may replace: its own doesn't matter.
std::vector<std::string> plain_settings();

}  // namespace forge

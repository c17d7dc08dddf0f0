#pragma once

#include <cstddef>
#include <optional>

#include "predict/machine.hpp"

namespace forge {

// A resolved deck on a mesh, with the choices that need least memory there, and few microbatches: memory is of those
// that are in flight.
Deck smallest_on(const Deck& resolved, const MeshDeck& mesh);

// Bytes of the rank that needs most, with the libraries' memory, or of the first stage's without; none where the deck
// isn't legal on so many ranks.
std::optional<std::size_t> bytes_on(Deck deck, int ranks, int capability, bool all_stages);

// A layout on which the rank that needs most has so many bytes.
struct LeastLayout {
  Deck deck;
  std::size_t bytes = 0;
};
// The layout that needs least memory, for a resolved deck's model and batch on so many ranks: without replicas, with as
// few stages as are legal, tp and cp inside a node or as the deck has them, with the choices that need least memory.
// None where none of them is legal.
std::optional<LeastLayout> least_layout(const Deck& resolved, int ranks, int ranks_per_node, int capability);
// Its bytes; none where none is legal.
std::optional<std::size_t> least_bytes(const Machine& machine, const Deck& resolved, int ranks);

}  // namespace forge

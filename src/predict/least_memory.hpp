#pragma once

#include <cstddef>
#include <optional>

#include "predict/machine.hpp"

namespace forge {

// A resolved deck on a mesh, with the choices that need least memory there, and few microbatches: memory is of those
// that are in flight.
Deck smallest_on(const Deck& resolved, const MeshDeck& mesh);

// Bytes of the rank that needs most, with what libraries take, or of the first stage's without; none where the deck
// isn't legal on so many ranks.
std::optional<std::size_t> bytes_on(Deck deck, int ranks, int capability, bool all_stages);

// What a resolved deck's model and batch need at least of each of so many ranks: of layouts without replicas, with as
// few stages as are legal, whose tp and cp stay inside a node, with the choices that need least memory. None where none
// of them is legal.
std::optional<std::size_t> least_bytes(const Machine& machine, const Deck& resolved, int ranks);

}  // namespace forge

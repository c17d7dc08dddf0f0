#pragma once

#include <string>
#include <vector>

#include "predict/outcome.hpp"

namespace forge {

// A legal deck that differs from another one in one choice, and in the keys that follow from it: etp that was as tp,
// ep, the microbatch or the split where they no longer divide.
struct Neighbour {
  std::string kind;    // of the choice: "tp", "pp", "cp", "dp", "ep", "etp", "microbatch", "recompute", "zero", …
  std::string change;  // "mesh.dp_shard=2 mesh.tp=8", as --set takes it
  Deck deck;           // resolved
};
std::vector<Neighbour> neighbours_of(const Deck& resolved, int ranks);

// The keys of layouts whose values differ, as "key=value key=value"; of experts alone etp. Keys that `from` may leave
// open, etp and accumulate, are there where their values aren't the ones that would follow.
std::string layout_difference(const Deck& from, const Deck& to);

// A neighbour with its step and the memory of the rank that needs most.
struct PredictedNeighbour {
  Neighbour of;
  double seconds;
  std::size_t bytes;
  bool fits;
};
// All neighbours of the outcome's deck: those that fit first, then by seconds.
std::vector<PredictedNeighbour> predicted_neighbours(const Machine& machine, const Outcome& outcome);

}  // namespace forge

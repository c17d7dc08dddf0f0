#pragma once

#include <string>

#include "config/deck.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// Whether an ep group's rows can go to their experts in two hops: first, once a node, to the rank of the same place on
// each node that has one of a row's experts, then inside that node.
struct ExpertNodes {
  int nodes = 1;     // of each ep group; 1: no
  std::string rule;  // then the broken one, with legal values
};
// node_ranks: consecutive ranks of each node; 0: not known.
ExpertNodes expert_nodes(const MeshShape& mesh, int node_ranks);
// The nodes over which the deck's rows go in two hops; 1: in one.
int chosen_expert_nodes(const Deck& deck, const MeshShape& mesh);

}  // namespace forge

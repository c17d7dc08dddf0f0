#pragma once

#include <string>

#include "config/deck.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// The nodes over which the shards of dense parameters lie, and those of experts', as many on each; 1: they lie on one,
// or differently.
struct ShardNodes {
  int dense = 1, experts = 1;
  std::string rule;  // where both are 1: why, with legal values
};
// node_ranks: consecutive ranks of each node; 0: not known.
ShardNodes shard_nodes(const MeshShape& mesh, int node_ranks);
// Whether the deck asks for sums of gradients in two levels (train.reduction), and its mesh has them.
bool reduces_in_levels(const Deck& deck, const MeshShape& mesh);
// Takes one level in the place of two that the mesh doesn't have.
void drop_illegal_levels(Deck& deck, const MeshShape& mesh);
// Sets those over which the deck's sums have two levels (train.reduction).
void set_shard_nodes(const Deck& deck, MeshShape& mesh);

}  // namespace forge

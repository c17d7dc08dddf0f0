#include "layout/shard_nodes.hpp"

namespace forge {

namespace {

// Of `shards` ranks that stand `distance` apart, the first of which has a multiple of shards · distance as its number.
int nodes_of(int shards, int distance, int node_ranks) {
  if (node_ranks == 0) return 1;
  const bool alike = distance % node_ranks == 0 || node_ranks % distance == 0;
  const int of_node = distance < node_ranks ? node_ranks / distance : 1;
  return alike && shards % of_node == 0 ? shards / of_node : 1;
}

}  // namespace

ShardNodes shard_nodes(const MeshShape& mesh, int node_ranks) {
  ShardNodes nodes{nodes_of(mesh.dense_shards(), mesh.tp, node_ranks),
                   nodes_of(mesh.expert_shards(), mesh.ep * mesh.etp, node_ranks),
                   {}};
  if (nodes.dense > 1 || nodes.experts > 1) return nodes;
  if (node_ranks == 0)
    nodes.rule = "nodes that are not known or have different numbers of ranks";
  else
    nodes.rule = "mesh.dp_shard x mesh.cp = " + std::to_string(mesh.dense_shards()) +
                 ", mesh.tp = " + std::to_string(mesh.tp) + " on nodes of " + std::to_string(node_ranks) +
                 (node_ranks == 1 ? " rank" : " ranks") + "; legal: shards on two nodes or more, as many on each";
  return nodes;
}

bool reduces_in_levels(const Deck& deck, const MeshShape& mesh) {
  return deck.train.reduction != ReductionLevels::one_level && deck.train.zero_stage > 0 &&
         shard_nodes(mesh, deck.mesh.node_ranks).rule.empty();
}

void drop_illegal_levels(Deck& deck, const MeshShape& mesh) {
  const bool two = deck.train.reduction == ReductionLevels::two_level;
  if (two && !reduces_in_levels(deck, mesh)) deck.train.reduction = ReductionLevels::one_level;
}

void set_shard_nodes(const Deck& deck, MeshShape& mesh) {
  const ShardNodes nodes = reduces_in_levels(deck, mesh) ? shard_nodes(mesh, deck.mesh.node_ranks) : ShardNodes{};
  mesh.shard_nodes = nodes.dense;
  mesh.expert_shard_nodes = nodes.experts;
}

}  // namespace forge

#include "layout/expert_nodes.hpp"

namespace forge {

// An ep group's ranks follow each other where etp is 1, and its first rank's number is a multiple of ep.
ExpertNodes expert_nodes(const MeshShape& mesh, int node_ranks) {
  if (mesh.etp > 1) return {1, "mesh.etp = " + std::to_string(mesh.etp) + "; legal: 1"};
  if (node_ranks == 0) return {1, "nodes that are not known or have different numbers of ranks"};
  const int nodes = mesh.ep / node_ranks;
  if (node_ranks >= 2 && nodes >= 2 && mesh.ep % node_ranks == 0) return {nodes, ""};
  return {1, "mesh.ep = " + std::to_string(mesh.ep) + " on nodes of " + std::to_string(node_ranks) +
                 (node_ranks == 1 ? " rank" : " ranks") +
                 "; legal: ep a multiple of a node's ranks, at least two nodes of at least two ranks"};
}

int chosen_expert_nodes(const Deck& deck, const MeshShape& mesh) {
  const DispatchMethod method = deck.model.dispatch;
  const bool asked = method == DispatchMethod::automatic || method == DispatchMethod::two_level;
  return asked && deck.model.experts > 0 ? expert_nodes(mesh, deck.mesh.node_ranks).nodes : 1;
}

}  // namespace forge

#pragma once

#include <array>
#include <vector>

#include "core/collectives.hpp"
#include "layout/mesh_shape.hpp"
#include "plan/rank_share.hpp"

namespace forge {

// The ranks of a rank's group, ascending (comm/mesh.hpp makes the communicators). Of pp: the rank and the next stage's.
// `copies`: tp neighbours that hold the same key and value heads; `tables`: pp coordinates that hold the token table.
std::vector<int> ranks_of_group(const MeshShape& mesh, Group group, int rank, const MeshGroups& groups);

// How the ranks of a group lie: `ranks` of them on `nodes` nodes, where `near` of each node's ranks are in one group,
// and `groups` such groups of the node communicate at the same time.
struct Placement {
  int ranks = 1, nodes = 1, near = 1, groups = 1;
};
// How a rank's groups lie on nodes of so many ranks, which hold consecutive ranks.
std::array<Placement, group_count> placements(const MeshShape& mesh, int rank, const MeshGroups& groups,
                                              int ranks_per_node);

// The worst placement of each kind of group in a pipeline stage: on most nodes, with fewest ranks beside each other.
// Where sizes of groups and nodes divide one another all lie alike.
std::array<Placement, group_count> worst_placements(const MeshShape& mesh, int stage, const MeshGroups& groups,
                                                    int ranks_per_node);

// Ranks of every group that a rank is in.
using GroupSizes = std::array<std::int64_t, group_count>;
GroupSizes group_sizes(const ModelSpec& whole, const MeshShape& mesh, const RankShare& share);
// Bytes that the rank sends with such calls; none where the group is the rank alone.
std::int64_t bytes_of(const Sent& sent, const GroupSizes& sizes);

}  // namespace forge

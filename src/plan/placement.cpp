#include "plan/placement.hpp"

#include <algorithm>
#include <iterator>

#include "core/to_size.hpp"
#include "nn/adapter.plan.hpp"

namespace forge {

namespace {

std::vector<int> expert_group(const MeshShape& m, Group group, int rank) {
  enum : unsigned { replicas = 1u << 1, shards = 1u << 2, nodes = 1u << 3, of_node = 1u << 4, etp = 1u << 5 };
  const Grid grid({m.pp, m.expert_replicas(), m.expert_shards(), m.ep_nodes, m.ep_node_ranks(), m.etp});
  switch (group) {
    case Group::ep:
      return grid.group_of(rank, nodes | of_node);
    case Group::etp:
    case Group::expert_gradient_etp:
      return grid.group_of(rank, etp);
    case Group::expert_gradients:
      return grid.group_of(rank, replicas | shards);
    case Group::expert_gradient_replicas:
      return grid.group_of(rank, replicas);
    case Group::expert_matrices:
      return grid.group_of(rank, shards | etp);
    case Group::ep_rail:
      return m.ep_nodes > 1 ? grid.group_of(rank, nodes) : std::vector<int>{rank};
    case Group::ep_node:
      return m.ep_nodes > 1 ? grid.group_of(rank, of_node) : std::vector<int>{rank};
    default:
      return grid.group_of(rank, shards);
  }
}

// Of the two levels of sums over shards; where there is one, the shards and the rank alone.
std::vector<int> shard_group(const MeshShape& m, Group group, int rank) {
  enum : unsigned { nodes = 1u << 1, of_node = 1u << 2 };
  const bool experts = group == Group::expert_gradient_shards || group == Group::expert_gradient_node ||
                       group == Group::expert_gradient_rail;
  const bool levels = (experts ? m.expert_shard_nodes : m.shard_nodes) > 1;
  const Grid grid = experts ? m.expert_shard_levels() : m.shard_levels();
  switch (group) {
    case Group::gradient_shards:
    case Group::expert_gradient_shards:
      return levels ? std::vector<int>{rank} : grid.group_of(rank, nodes | of_node);
    case Group::gradient_node:
    case Group::expert_gradient_node:
      return levels ? grid.group_of(rank, of_node) : std::vector<int>{rank};
    default:
      return levels ? grid.group_of(rank, nodes) : std::vector<int>{rank};
  }
}

std::vector<int> context_group(const MeshShape& m, Group group, int rank) {
  if (!m.two_level_cp()) return {rank};
  enum : unsigned { outer = 1u << 1, inner = 1u << 2 };
  return m.context().group_of(rank, group == Group::cp_inner ? inner : outer);
}

// Of some ranks along pp, those of the same place in their stages.
std::vector<int> along_stages(const Grid& grid, int rank, const std::vector<int>& stages) {
  const int stride = grid.stride(static_cast<int>(Axis::pp)), here = grid.coordinate(rank, static_cast<int>(Axis::pp));
  std::vector<int> ranks;
  for (const int stage : stages) ranks.push_back(rank + (stage - here) * stride);
  return ranks;
}

}  // namespace

std::vector<int> ranks_of_group(const MeshShape& m, Group group, int rank, const MeshGroups& groups) {
  const Grid grid = m.dense();
  const int stage = grid.coordinate(rank, static_cast<int>(Axis::pp));
  switch (group) {
    case Group::scalars:
      return grid.group_of(rank, grid.all_axes());
    case Group::tp:
    case Group::tp_behind:
    case Group::gradient_tp:
      return grid.group_of(rank, bits_of({Axis::tp}));
    case Group::cp:
      return grid.group_of(rank, bits_of({Axis::cp}));
    case Group::cp_inner:
    case Group::cp_outer:
      return context_group(m, group, rank);
    case Group::pp:
      return m.pp == 1 ? std::vector<int>{rank}
                       : along_stages(grid, rank, {stage, stage + 1 < m.pp ? stage + 1 : stage - 1});
    case Group::gradients:
      return grid.group_of(rank, gradient_axes);
    case Group::gradient_shards:
    case Group::gradient_node:
    case Group::gradient_rail:
    case Group::expert_gradient_shards:
    case Group::expert_gradient_node:
    case Group::expert_gradient_rail:
      return shard_group(m, group, rank);
    case Group::parameter_shards:
      return grid.group_of(rank, shard_axes);
    case Group::gradient_replicas:
      return grid.group_of(rank, bits_of({Axis::dp_replicate}));
    case Group::matrices:
      return grid.group_of(rank, matrix_axes);
    case Group::gradient_copies: {
      std::vector<int> ranks;
      for (int r = 0; r < groups.kv_copies; ++r) ranks.push_back(rank / groups.kv_copies * groups.kv_copies + r);
      return ranks;
    }
    case Group::gradient_tied: {
      const auto& stages = groups.table_stages;
      const bool here = std::find(stages.begin(), stages.end(), stage) != stages.end();
      return here ? along_stages(grid, rank, stages) : std::vector<int>{rank};
    }
    default:
      return expert_group(m, group, rank);
  }
}

std::array<Placement, group_count> placements(const MeshShape& mesh, int rank, const MeshGroups& groups,
                                              int ranks_per_node) {
  std::array<Placement, group_count> list;
  const int here = std::min(ranks_per_node, mesh.world());  // ranks of this node
  for (int g = 0; g < group_count; ++g) {
    const std::vector<int> ranks = ranks_of_group(mesh, static_cast<Group>(g), rank, groups);
    Placement& p = list[to_size(g)];
    p.ranks = static_cast<int>(ranks.size());
    p.nodes = p.near = 0;
    int last = -1;
    for (const int r : ranks) {
      const int node = r / ranks_per_node;
      p.nodes += node != last;
      last = node;
      p.near += node == rank / ranks_per_node;
    }
    p.groups = std::max(1, here / std::max(1, p.near));
  }
  return list;
}

namespace {

// Whether groups of so many consecutive ranks, or of ranks so far apart, lie alike on all nodes.
bool lies_alike(const MeshShape& m, int ranks_per_node) {
  const int distances[] = {
      m.tp,  m.tp * m.cp_inner,         m.tp * m.cp,  m.tp * m.cp * m.dp_shard,        m.world() / m.pp,
      m.etp, m.etp * m.ep_node_ranks(), m.etp * m.ep, m.etp * m.ep * m.expert_shards()};
  return std::all_of(std::begin(distances), std::end(distances),
                     [&](int d) { return d % ranks_per_node == 0 || ranks_per_node % d == 0; });
}

bool lies_worse(const Placement& a, const Placement& b) {
  return a.nodes != b.nodes ? a.nodes > b.nodes : a.near < b.near;
}

}  // namespace

std::array<Placement, group_count> worst_placements(const MeshShape& mesh, int stage, const MeshGroups& groups,
                                                    int ranks_per_node) {
  constexpr int most_edges = 16;  // between nodes, which the groups of the ranks behind them may straddle
  const int size = mesh.world() / mesh.pp, first = stage * size;
  auto worst = placements(mesh, first, groups, ranks_per_node);
  if (lies_alike(mesh, ranks_per_node)) return worst;
  int rank = (first / ranks_per_node + 1) * ranks_per_node;
  for (int edge = 0; edge < most_edges && rank < first + size; ++edge, rank += ranks_per_node) {
    const auto here = placements(mesh, rank, groups, ranks_per_node);
    for (std::size_t g = 0; g < here.size(); ++g)
      if (lies_worse(here[g], worst[g])) worst[g] = here[g];
  }
  return worst;
}

GroupSizes group_sizes(const ModelSpec& whole, const MeshShape& m, const RankShare& share) {
  GroupSizes sizes{};
  const auto set = [&](Group group, std::int64_t size) { sizes[to_size(group)] = size; };
  set(Group::scalars, m.world());
  set(Group::tp, m.tp);
  set(Group::tp_behind, m.tp);
  set(Group::cp, m.cp);
  set(Group::cp_inner, m.two_level_cp() ? m.cp_inner : 1);
  set(Group::cp_outer, m.two_level_cp() ? m.cp / m.cp_inner : 1);
  set(Group::pp, m.pp);
  set(Group::gradients, m.data_parallel() * m.cp);
  set(Group::gradient_shards, m.shard_nodes > 1 ? 1 : m.dense_shards());
  set(Group::gradient_rail, m.shard_nodes);
  set(Group::gradient_node, m.shard_nodes > 1 ? m.dense_shards() / m.shard_nodes : 1);
  set(Group::gradient_replicas, m.dp_replicate);
  set(Group::gradient_tp, m.tp);
  set(Group::gradient_copies, kv_copies(whole, m.tp));
  set(Group::gradient_tied, share.table_stages);
  set(Group::parameter_shards, m.dense_shards());
  set(Group::ep, m.ep);
  set(Group::etp, m.etp);
  set(Group::expert_gradients, m.edp);
  set(Group::expert_gradient_shards, m.expert_shard_nodes > 1 ? 1 : m.expert_shards());
  set(Group::expert_gradient_rail, m.expert_shard_nodes);
  set(Group::expert_gradient_node, m.expert_shard_nodes > 1 ? m.expert_shards() / m.expert_shard_nodes : 1);
  set(Group::expert_gradient_replicas, m.expert_replicas());
  set(Group::expert_parameter_shards, m.expert_shards());
  set(Group::matrices, m.dense_shards() * m.tp);
  set(Group::expert_matrices, m.expert_shards() * m.etp);
  set(Group::ep_rail, m.ep_nodes);
  set(Group::ep_node, m.ep_nodes > 1 ? m.ep_node_ranks() : 1);
  set(Group::expert_gradient_etp, has_expert_adapters(whole) ? m.etp : 1);
  return sizes;
}

std::int64_t bytes_of(const Sent& s, const GroupSizes& sizes) {
  const std::int64_t ranks = sizes[to_size(s.group)];
  if (ranks == 1) return 0;
  return s.times * sent_elements(s.collective, s.count, ranks) * static_cast<std::int64_t>(size_of(s.type));
}

}  // namespace forge

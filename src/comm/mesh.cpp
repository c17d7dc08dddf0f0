#include "comm/mesh.hpp"

#include <utility>

#include "comm/thread_communicator.hpp"

namespace forge {

namespace {

// Consecutive tp ranks, `copies` of them.
std::unique_ptr<Communicator> copies_group(Communicator& device, const MeshShape& shape, int copies) {
  if (copies == 1) return self_communicator();
  if (copies < 1 || shape.tp % copies != 0)
    throw Error(std::to_string(copies) + " copies of the key and value heads among " + std::to_string(shape.tp) +
                " tensor-parallel ranks");
  return device.part([copies](int rank) { return rank / copies; });
}

// The ranks of these stages that differ in nothing else; those of other stages are alone.
std::unique_ptr<Communicator> tied_group(Communicator& device, const MeshShape& shape, const std::vector<int>& stages) {
  if (stages.size() < 2) return self_communicator();
  const Grid grid = shape.dense();
  auto group = device.part([&](int rank) {
    const int stage = grid.coordinate(rank, static_cast<int>(Axis::pp));
    const bool takes_part = std::find(stages.begin(), stages.end(), stage) != stages.end();
    return takes_part ? grid.group_number(rank, bits_of({Axis::pp})) : -1;
  });
  return group ? std::move(group) : self_communicator();
}

// Beside computation a collective leaves most of the device's multiprocessors to products: 16 blocks of 132 carry what
// eight 400 Gb/s adapters a node do, unless the deck says how many. Those that computation waits for take what NCCL
// likes. Not measured.
int most_blocks(Group group, int asked) {
  switch (group) {
    case Group::tp:
    case Group::cp:
    case Group::ep:
    case Group::etp:
    case Group::ep_rail:
    case Group::ep_node:
    case Group::cp_inner:
    case Group::cp_outer:
      return 0;
    default:
      return asked > 0 ? asked : 16;
  }
}

}  // namespace

Mesh::Mesh(std::unique_ptr<Communicator> world, const MeshShape& shape, const MeshGroups& groups)
    : shape_(shape), cp_pairs_(groups.cp_pairs), blocks_(groups.blocks), world_(std::move(world)) {
  if (shape.world() != world_->size())
    throw Error("a mesh of " + std::to_string(shape.world()) + " ranks in a world of " +
                std::to_string(world_->size()));
  const Grid grid = shape.dense();
  data_ = grid.group_size(data_axes) == 1 ? self_communicator()
                                          : world_->part([&](int rank) { return grid.group_number(rank, data_axes); });
  group(Group::scalars) = world_->device();
  const auto device = scalars().cartesian(grid);
  const auto make = [&](Group g, AxisBits axes, bool wanted = true) { make_group(*device, g, axes, wanted); };
  make(Group::tp, bits_of({Axis::tp}));
  make(Group::tp_behind, bits_of({Axis::tp}));
  make(Group::cp, bits_of({Axis::cp}));
  make(Group::pp, bits_of({Axis::pp}));
  make(Group::gradients, gradient_axes, groups.whole);
  make(Group::gradient_shards, shard_axes, groups.sharded && shape.shard_nodes == 1);
  make(Group::gradient_replicas, bits_of({Axis::dp_replicate}), groups.sharded);
  make(Group::gradient_tp, bits_of({Axis::tp}));
  group(Group::gradient_copies) = copies_group(*device, shape, groups.kv_copies);
  group(Group::gradient_tied) = tied_group(*device, shape, groups.table_stages);
  make(Group::parameter_shards, shard_axes, groups.sharded);
  make(Group::matrices, matrix_axes, groups.matrices);
  make_context_groups();
  make_expert_groups(groups);
  make_levels(shape.shard_levels(), shape.shard_nodes > 1, Group::gradient_node, Group::gradient_rail);
  make_levels(shape.expert_shard_levels(), groups.experts && shape.expert_shard_nodes > 1, Group::expert_gradient_node,
              Group::expert_gradient_rail);
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g]->set_group(static_cast<Group>(g));
}

void Mesh::make_group(Communicator& device, Group g, AxisBits axes, bool wanted) {
  device.limit_blocks(most_blocks(g, blocks_));
  group(g) = wanted ? device.sub(axes) : self_communicator();
}

// Attention's two levels of cp: a second Cartesian communicator, too.
void Mesh::make_context_groups() {
  enum { before, outer, inner, tp };
  const bool wanted = shape_.two_level_cp();
  const auto device = wanted ? scalars().cartesian(shape_.context()) : self_communicator();
  make_group(*device, Group::cp_inner, 1u << inner, wanted);
  make_group(*device, Group::cp_outer, 1u << outer, wanted);
}

// The two levels of sums over shards.
void Mesh::make_levels(const Grid& levels, bool wanted, Group of_node, Group rail) {
  const auto device = wanted ? scalars().cartesian(levels) : self_communicator();
  make_group(*device, of_node, 1u << 2, wanted);
  make_group(*device, rail, 1u << 1, wanted);
}

// The expert view of the same ranks, with edp in its two parts: a second Cartesian communicator.
void Mesh::make_expert_groups(const MeshGroups& groups) {
  enum { pp, replicas, shards, nodes, of_node, etp };
  const auto bit = [](int axis) { return 1u << axis; };
  const Grid grid({shape_.pp, shape_.expert_replicas(), shape_.expert_shards(), shape_.ep_nodes, shape_.ep_node_ranks(),
                   shape_.etp});
  const auto device = groups.experts ? scalars().cartesian(grid) : self_communicator();
  const auto make = [&](Group g, AxisBits axes, bool wanted = true) {
    make_group(*device, g, axes, wanted && groups.experts);
  };
  make(Group::ep, bit(nodes) | bit(of_node));
  make(Group::etp, bit(etp));
  make(Group::expert_gradients, bit(replicas) | bit(shards), groups.whole);
  make(Group::expert_gradient_shards, bit(shards), groups.sharded && shape_.expert_shard_nodes == 1);
  make(Group::expert_gradient_replicas, bit(replicas), groups.sharded);
  make(Group::expert_parameter_shards, bit(shards), groups.sharded);
  make(Group::expert_matrices, bit(shards) | bit(etp), groups.matrices);
  make(Group::ep_rail, bit(nodes), shape_.ep_nodes > 1);
  make(Group::ep_node, bit(of_node), shape_.ep_nodes > 1);
  make(Group::expert_gradient_etp, bit(etp), groups.expert_adapters);
}

void Mesh::connect() {
  Stream stream;
  for (const Group g :
       {Group::cp, Group::ep, Group::etp, Group::matrices, Group::expert_matrices, Group::ep_rail, Group::ep_node,
        Group::cp_inner, Group::cp_outer, Group::gradient_rail, Group::expert_gradient_rail})
    if (g != Group::cp || cp_pairs_) of(g).connect(stream);
}

std::vector<std::pair<std::string, Traffic>> Mesh::traffic() const {
  std::vector<std::pair<std::string, Traffic>> sent;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    sent.emplace_back(name_of(static_cast<Group>(g)), groups_[g]->traffic());
  return sent;
}

void Mesh::measure_in(Timeline* timeline) {
  for (const auto& group : groups_) group->measure_in(timeline);
}

}  // namespace forge

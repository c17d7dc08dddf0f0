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

}  // namespace

Mesh::Mesh(std::unique_ptr<Communicator> world, const MeshShape& shape, const MeshGroups& groups)
    : shape_(shape), world_(std::move(world)) {
  if (shape.world() != world_->size())
    throw Error("a mesh of " + std::to_string(shape.world()) + " ranks in a world of " +
                std::to_string(world_->size()));
  const Grid grid = shape.dense();
  const auto device = world_->device()->cartesian(grid);
  data_ = grid.group_size(data_axes) == 1 ? self_communicator()
                                          : world_->part([&](int rank) { return grid.group_number(rank, data_axes); });
  group(Group::scalars) = device->sub(grid.all_axes());
  group(Group::tp) = device->sub(bits_of({Axis::tp}));
  group(Group::cp) = device->sub(bits_of({Axis::cp}));
  group(Group::pp) = device->sub(bits_of({Axis::pp}));
  group(Group::gradients) = device->sub(gradient_axes);
  group(Group::gradient_shards) = device->sub(shard_axes);
  group(Group::gradient_replicas) = device->sub(bits_of({Axis::dp_replicate}));
  group(Group::gradient_tp) = device->sub(bits_of({Axis::tp}));
  group(Group::gradient_copies) = copies_group(*device, shape, groups.kv_copies);
  group(Group::gradient_tied) = tied_group(*device, shape, groups.table_stages);
  group(Group::parameter_shards) = device->sub(shard_axes);
  group(Group::matrices) = groups.matrices ? device->sub(matrix_axes) : self_communicator();
  make_expert_groups(groups.experts, groups.matrices);
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g]->set_group(static_cast<Group>(g));
}

// The expert view of the same ranks, with edp in its two parts: a second Cartesian communicator.
void Mesh::make_expert_groups(bool wanted, bool matrices) {
  enum { pp, replicas, shards, ep, etp };
  const auto bit = [](int axis) { return 1u << axis; };
  const Grid grid({shape_.pp, shape_.expert_replicas(), shape_.expert_shards(), shape_.ep, shape_.etp});
  std::unique_ptr<Communicator> device;
  if (wanted) device = world_->device()->cartesian(grid);
  const auto make = [&](AxisBits axes) { return wanted ? device->sub(axes) : self_communicator(); };
  group(Group::ep) = make(bit(ep));
  group(Group::etp) = make(bit(etp));
  group(Group::expert_gradients) = make(bit(replicas) | bit(shards));
  group(Group::expert_gradient_shards) = make(bit(shards));
  group(Group::expert_gradient_replicas) = make(bit(replicas));
  group(Group::expert_parameter_shards) = make(bit(shards));
  group(Group::expert_matrices) = matrices ? make(bit(shards) | bit(etp)) : self_communicator();
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

#include "comm/mesh.hpp"

#include <utility>

#include "comm/device_communicator.hpp"
#include "comm/thread_communicator.hpp"

namespace forge {

namespace {

// Consecutive tp ranks, `copies` of them.
std::unique_ptr<Communicator> copies_group(Communicator& device, const MeshShape& shape, int copies) {
  if (copies == 1) return self_communicator();
  if (copies < 1 || shape.tp % copies != 0)
    throw Error(std::to_string(copies) + " copies of the key and value heads among " + std::to_string(shape.tp) +
                " tensor-parallel ranks");
  return device.split(device.rank() / copies, device.rank());
}

// The ranks of these stages that differ in nothing else; those of other stages are alone.
std::unique_ptr<Communicator> tied_group(Communicator& device, const MeshShape& shape, const std::vector<int>& stages) {
  if (stages.size() < 2) return self_communicator();
  const Grid grid = shape.dense();
  const int stage = grid.coordinate(device.rank(), static_cast<int>(Axis::pp));
  const bool takes_part = std::find(stages.begin(), stages.end(), stage) != stages.end();
  auto group = device.split(takes_part ? grid.group_number(device.rank(), bits_of({Axis::pp})) : -1, device.rank());
  return takes_part ? std::move(group) : self_communicator();
}

}  // namespace

Mesh::Mesh(std::unique_ptr<Communicator> world, const MeshShape& shape, const MeshGroups& groups)
    : shape_(shape), world_(std::move(world)) {
  if (shape.world() != world_->size())
    throw Error("a mesh of " + std::to_string(shape.world()) + " ranks in a world of " +
                std::to_string(world_->size()));
  const Grid grid = shape.dense();
  const auto device = device_communicator(*world_)->cartesian(grid);
  data_ = grid.group_size(data_axes) == 1 ? self_communicator()
                                          : world_->split(grid.group_number(rank(), data_axes), rank());
  scalars_ = device->sub(grid.all_axes());
  tp_ = device->sub(bits_of({Axis::tp}));
  cp_ = device->sub(bits_of({Axis::cp}));
  pipeline_ = device->sub(bits_of({Axis::pp}));
  gradients_ = device->sub(gradient_axes);
  gradient_shards_ = device->sub(shard_axes);
  gradient_replicas_ = device->sub(bits_of({Axis::dp_replicate}));
  gradient_tp_ = device->sub(bits_of({Axis::tp}));
  gradient_copies_ = copies_group(*device, shape, groups.kv_copies);
  gradient_tied_ = tied_group(*device, shape, groups.table_stages);
  parameter_shards_ = device->sub(shard_axes);
  matrices_ = groups.matrices ? device->sub(matrix_axes) : self_communicator();
  make_expert_groups(groups.experts, groups.matrices);
  stage_ = groups.stage ? device->sub(stage_axes) : self_communicator();
}

// The expert view of the same ranks, with edp in its two parts: a second Cartesian communicator.
void Mesh::make_expert_groups(bool wanted, bool matrices) {
  enum { pp, replicas, shards, ep, etp };
  const auto bit = [](int axis) { return 1u << axis; };
  const Grid grid({shape_.pp, shape_.expert_replicas(), shape_.expert_shards(), shape_.ep, shape_.etp});
  std::unique_ptr<Communicator> device;
  if (wanted) device = device_communicator(*world_)->cartesian(grid);
  const auto group = [&](AxisBits axes) { return wanted ? device->sub(axes) : self_communicator(); };
  ep_ = group(bit(ep));
  etp_ = group(bit(etp));
  expert_gradients_ = group(bit(replicas) | bit(shards));
  expert_gradient_shards_ = group(bit(shards));
  expert_gradient_replicas_ = group(bit(replicas));
  expert_parameter_shards_ = group(bit(shards));
  expert_matrices_ = matrices ? group(bit(shards) | bit(etp)) : self_communicator();
}

std::vector<std::pair<Group, Communicator*>> Mesh::groups() const {
  return {{Group::scalars, scalars_.get()},
          {Group::tp, tp_.get()},
          {Group::cp, cp_.get()},
          {Group::pp, pipeline_.get()},
          {Group::gradients, gradients_.get()},
          {Group::gradient_shards, gradient_shards_.get()},
          {Group::gradient_replicas, gradient_replicas_.get()},
          {Group::gradient_tp, gradient_tp_.get()},
          {Group::gradient_copies, gradient_copies_.get()},
          {Group::gradient_tied, gradient_tied_.get()},
          {Group::parameter_shards, parameter_shards_.get()},
          {Group::ep, ep_.get()},
          {Group::etp, etp_.get()},
          {Group::expert_gradients, expert_gradients_.get()},
          {Group::expert_gradient_shards, expert_gradient_shards_.get()},
          {Group::expert_gradient_replicas, expert_gradient_replicas_.get()},
          {Group::expert_parameter_shards, expert_parameter_shards_.get()},
          {Group::matrices, matrices_.get()},
          {Group::expert_matrices, expert_matrices_.get()},
          {Group::stage, stage_.get()}};
}

std::vector<std::pair<std::string, Traffic>> Mesh::traffic() const {
  std::vector<std::pair<std::string, Traffic>> sent;
  for (const auto& [group, ranks] : groups()) sent.emplace_back(name_of(group), ranks->traffic());
  return sent;
}

void Mesh::measure_in(Timeline* timeline) {
  for (const auto& [group, ranks] : groups()) ranks->measure_in(timeline, name_of(group));
}

}  // namespace forge

#include "comm/mesh.hpp"

#include <string>
#include <utility>

#include "comm/device_communicator.hpp"

namespace forge {

namespace {

MeshShape data_parallel(int ranks) {
  MeshShape shape;
  shape.dp_shard = shape.edp = ranks;
  return shape;
}

}  // namespace

Mesh::Mesh(const Environment& environment) : Mesh(environment.make_world(), data_parallel(environment.size())) {}

Mesh::Mesh(std::unique_ptr<Communicator> world, const MeshShape& shape) : shape_(shape), world_(std::move(world)) {
  const int rank = world_->rank();
  if (shape.world() != world_->size())
    throw Error("a mesh of " + std::to_string(shape.world()) + " ranks in a world of " +
                std::to_string(world_->size()));
  const auto device = device_communicator(*world_);
  const Grid grid = shape.dense();
  replicas_ = device->split(grid.group_number(rank, gradient_axes), rank);
  background_ = replicas_->duplicate();
}

}  // namespace forge

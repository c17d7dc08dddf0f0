#pragma once

#include <memory>

#include "comm/environment.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// The communicators of a rank, made once and in a fixed order.
class Mesh {
 public:
  // Data parallel over the whole world: dp_replicate · dp_shard = world.
  explicit Mesh(const Environment& environment);
  // Any world, of MPI or of threads; the shape's product is its size.
  Mesh(std::unique_ptr<Communicator> world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  // All ranks, for host values.
  Communicator& world() { return *world_; }
  // The ranks whose gradients are summed (dp_replicate, dp_shard, cp): for scalars and whatever stands in the compute
  // stream.
  Communicator& replicas() { return *replicas_; }
  // The same ranks again: for gradients that are reduced behind backward.
  Communicator& background() { return *background_; }

 private:
  MeshShape shape_;
  std::unique_ptr<Communicator> world_, replicas_, background_;
};

}  // namespace forge

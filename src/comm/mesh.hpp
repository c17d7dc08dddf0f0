#pragma once

#include <memory>

#include "comm/environment.hpp"

namespace forge {

// The communicators of a rank, made once and in a fixed order.
class Mesh {
 public:
  // Data parallel over the whole world: dp_replicate · dp_shard = world.
  explicit Mesh(const Environment& environment);

  Communicator& world() { return *world_; }
  // Data-parallel ranks: for scalars and whatever stands in the compute stream.
  Communicator& replicas() { return *replicas_; }
  // The same ranks again: for gradients that are reduced behind backward.
  Communicator& background() { return *background_; }

 private:
  std::unique_ptr<Communicator> world_, replicas_, background_;
};

}  // namespace forge

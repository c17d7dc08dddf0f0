#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// Groups that follow from the model beside the mesh's axes.
struct MeshGroups {
  int kv_copies = 1;                         // tp neighbours that hold the same key and value heads
  std::pair<int, int> tied_stages = {0, 0};  // pp coordinates that share the embedding table; equal: one rank does
};

// The communicators of a rank, all made here, once and in one order on every rank. A communicator serves one stream:
// where two streams talk to the same ranks, there are two of them. Axes of one rank have groups of one rank.
class Mesh {
 public:
  // `world`: all ranks, of MPI or of threads; the shape's product is its size.
  Mesh(std::unique_ptr<Communicator> world, const MeshShape& shape, const MeshGroups& groups = {});

  const MeshShape& shape() const { return shape_; }
  int rank() const { return world_->rank(); }
  int coordinate(Axis axis) const { return shape_.dense().coordinate(rank(), static_cast<int>(axis)); }
  // Position among the ranks that differ in these axes only.
  int index(AxisBits axes) const { return shape_.dense().index_in_group(rank(), axes); }

  // Host values.
  Communicator& world() { return *world_; }
  Communicator& data() { return *data_; }  // ranks that read different data (dp_replicate, dp_shard)
  // In the compute stream.
  Communicator& scalars() { return *scalars_; }  // all ranks: loss and gradient norm
  Communicator& tp() { return *tp_; }
  Communicator& cp() { return *cp_; }
  // Activations between stages, in a stream of their own.
  Communicator& pipeline() { return *pipeline_; }
  // Gradients, in the stream behind backward.
  Communicator& gradients() { return *gradients_; }                  // dp_replicate, dp_shard, cp: ZeRO 0
  Communicator& gradient_shards() { return *gradient_shards_; }      // dp_shard, cp
  Communicator& gradient_replicas() { return *gradient_replicas_; }  // dp_replicate
  Communicator& gradient_tp() { return *gradient_tp_; }              // of what tp replicates
  Communicator& gradient_copies() { return *gradient_copies_; }      // of key and value heads that tp copies
  Communicator& gradient_tied() { return *gradient_tied_; }  // of the embedding table on the first and the last stage
  // Parameters, in the stream ahead of use.
  Communicator& parameter_shards() { return *parameter_shards_; }  // dp_shard, cp

  // What this rank has sent so far on device communicators, by name: "tp", "cp", "pp", "gradients", ….
  std::vector<std::pair<std::string, Traffic>> traffic() const;

 private:
  MeshShape shape_;
  std::unique_ptr<Communicator> world_, data_, scalars_, tp_, cp_, pipeline_, gradients_, gradient_shards_,
      gradient_replicas_, gradient_tp_, gradient_copies_, gradient_tied_, parameter_shards_;
};

}  // namespace forge

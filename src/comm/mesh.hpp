#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// The ranks that share a unit's gradients.
struct GradientGroups {
  Communicator& all;       // whose gradients are summed
  Communicator& shards;    // of them, those that share its state
  Communicator& replicas;  // and those that hold copies of a shard
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
  Communicator& gradient_tied() { return *gradient_tied_; }          // of the token table, over the stages that hold it
  GradientGroups gradient_groups(bool experts) {
    return experts ? GradientGroups{*expert_gradients_, *expert_gradient_shards_, *expert_gradient_replicas_}
                   : GradientGroups{*gradients_, *gradient_shards_, *gradient_replicas_};
  }
  // Parameters, in the stream ahead of use.
  Communicator& parameter_shards(bool experts = false) {  // dp_shard, cp; of experts: the fast part of edp
    return experts ? *expert_parameter_shards_ : *parameter_shards_;
  }
  // The expert view, in the compute stream: ranks with other experts, and those that share an expert's columns.
  Communicator& ep() { return *ep_; }
  Communicator& etp() { return *etp_; }
  // Matrices that are updated whole, in a stream of their own: dp_shard, cp, tp; of experts their shards and etp.
  Communicator& matrices(bool experts) { return experts ? *expert_matrices_ : *matrices_; }

  // In the compute stream: all ranks of the stage, where they agree to repeat a forward pass.
  Communicator& stage() { return shape_.pp > 1 ? *stage_ : *scalars_; }

  // What this rank has sent so far on device communicators, by name: "tp", "cp", "pp", "gradients", ….
  std::vector<std::pair<std::string, Traffic>> traffic() const;
  // Collectives of all groups are measured in the timeline while it runs; null: no more.
  void measure_in(Timeline* timeline);

 private:
  void make_expert_groups(bool wanted, bool matrices);
  std::vector<std::pair<Group, Communicator*>> groups() const;

  MeshShape shape_;
  std::unique_ptr<Communicator> world_, data_, scalars_, tp_, cp_, pipeline_, gradients_, gradient_shards_,
      gradient_replicas_, gradient_tp_, gradient_copies_, gradient_tied_, parameter_shards_, ep_, etp_,
      expert_gradients_, expert_gradient_shards_, expert_gradient_replicas_, expert_parameter_shards_, matrices_,
      expert_matrices_, stage_;
};

}  // namespace forge

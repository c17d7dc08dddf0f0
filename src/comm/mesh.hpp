#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "layout/mesh_shape.hpp"

namespace forge {

// The communicators of a rank, all made here, once and in one order on every rank. Streams that work side by
// side have a communicator each, where they talk to the same ranks; one that two of them use serves one at a time. Axes
// of one rank, and groups without a use in the deck, have one rank alone. All are split off from the world's.
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
  // The group's communicator, for device operations.
  Communicator& of(Group group) { return *groups_[to_size(group)]; }
  // For operations in the compute stream.
  Communicator& scalars() { return of(Group::scalars); }  // all ranks: loss and gradient norm
  Communicator& tp() { return of(Group::tp); }
  Communicator& cp() { return of(Group::cp); }
  // The same ranks as tp, for operations in the stream of exchanges: behind products.
  Communicator& tp_behind() { return of(Group::tp_behind); }
  // The expert view: ranks with other experts, and those that share an expert's columns.
  Communicator& ep() { return of(Group::ep); }
  Communicator& etp() { return of(Group::etp); }
  // Activations between stages, in a stream of their own.
  Communicator& pipeline() { return of(Group::pp); }
  // Gradients, in the stream behind backward: layout/reductions.hpp; of a token table, over the stages that hold it.
  Communicator& gradient_tied() { return of(Group::gradient_tied); }
  // Parameters, in the stream ahead of use.
  Communicator& parameter_shards(bool experts = false) {  // dp_shard, cp; of experts: the fast part of edp
    return of(experts ? Group::expert_parameter_shards : Group::parameter_shards);
  }
  // Matrices that are updated whole, in a stream of their own: dp_shard, cp, tp; of experts their shards and etp.
  Communicator& matrices(bool experts) { return of(experts ? Group::expert_matrices : Group::matrices); }

  // Collective: connects all pairs of the groups in which any rank may send to any other, so that no step does, and a
  // network that doesn't reach them all is found at the start.
  void connect();

  // This rank's bytes sent so far on device communicators, by name: "tp", "cp", "pp", "gradients", ….
  std::vector<std::pair<std::string, Traffic>> traffic() const;
  // Collectives of all groups are measured in the timeline while it runs; null: no more.
  void measure_in(Timeline* timeline);

 private:
  void make_group(Communicator& device, Group group, AxisBits axes, bool wanted);
  void make_context_groups();
  void make_expert_groups(const MeshGroups& groups);
  void make_levels(const Grid& levels, bool wanted, Group of_node, Group rail);
  std::unique_ptr<Communicator>& group(Group group) { return groups_[to_size(group)]; }

  MeshShape shape_;
  bool cp_pairs_;
  int blocks_;  // MeshGroups::blocks
  std::unique_ptr<Communicator> world_, data_;
  std::array<std::unique_ptr<Communicator>, group_count> groups_;  // by Group
};

}  // namespace forge

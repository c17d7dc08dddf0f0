#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "config/deck.hpp"
#include "config/report.hpp"
#include "layout/grid.hpp"

namespace forge {

// The axes of the dense view, slowest to fastest (tp stays inside a node).
enum class Axis : int { pp, dp_replicate, dp_shard, cp, tp };
// The axes of the expert view of the same ranks; pp is the same coordinate in both.
enum class ExpertAxis : int { pp, edp, ep, etp };

// The bits of axes of either view.
template <class A>
constexpr AxisBits bits_of(std::initializer_list<A> axes) {
  AxisBits bits = 0;
  for (const A axis : axes) bits |= 1u << static_cast<int>(axis);
  return bits;
}

// Sets of axes with a name of their own.
inline constexpr AxisBits data_axes = bits_of({Axis::dp_replicate, Axis::dp_shard});  // read different data
inline constexpr AxisBits gradient_axes = bits_of({Axis::dp_replicate, Axis::dp_shard, Axis::cp});  // sum gradients
inline constexpr AxisBits shard_axes = bits_of({Axis::dp_shard, Axis::cp});             // share dense parameters
inline constexpr AxisBits matrix_axes = bits_of({Axis::dp_shard, Axis::cp, Axis::tp});  // hold parts of a matrix

// A resolved mesh: world = pp dp_replicate dp_shard cp tp, and ep etp edp = dp_replicate dp_shard cp tp.
struct MeshShape {
  int pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1;
  int ep = 1, etp = 1, edp = 1;
  int cp_inner = 1;  // cp ranks that exchange heads of attention (config/head_ranks.hpp); 1: none
  int ep_nodes = 1;  // over which an ep group sends rows in two hops (layout/expert_nodes.hpp); 1: in one
  // Over which sums of gradients over shards have two levels (layout/shard_nodes.hpp); 1: one level.
  int shard_nodes = 1, expert_shard_nodes = 1;

  int world() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int data_parallel() const { return dp_replicate * dp_shard; }  // groups of ranks that read different data
  // Data-parallel groups that exchange rows of experts with each other: the least number that holds whole groups of ep
  // and etp.
  int data_parallel_together() const;
  Grid dense() const { return Grid({pp, dp_replicate, dp_shard, cp, tp}); }
  bool two_level_cp() const { return cp_inner > 1 && cp_inner < cp; }
  // The dense view with cp in its two levels: the axes before it as one, outer ranks, inner ranks, tp.
  Grid context() const { return Grid({world() / (cp * tp), cp / cp_inner, cp_inner, tp}); }
  Grid expert() const { return Grid({pp, edp, ep, etp}); }
  int ep_node_ranks() const { return ep / ep_nodes; }  // of an ep group, on each of its nodes

  int dense_shards() const { return dp_shard * cp; }  // ranks that share dense parameters
  // Either view with its shards in the two levels of sums: the axes before as one, nodes, a node's shards, and the axes
  // behind as one.
  Grid shard_levels() const { return Grid({pp * dp_replicate, shard_nodes, dense_shards() / shard_nodes, tp}); }
  Grid expert_shard_levels() const {
    return Grid({pp * expert_replicas(), expert_shard_nodes, expert_shards() / expert_shard_nodes, ep * etp});
  }
  // With n = dp_shard cp tp: expert parameters shard over n / (ep etp) ranks of edp where ep etp divides n, and are
  // whole on every rank of edp where n divides ep etp. The rest of edp, the slow part, replicates.
  int expert_shards() const;
  int expert_replicas() const { return edp / expert_shards(); }
};

// The deck's mesh on `world` ranks. dp_shard -1 takes the rest. A pinned dp_shard with which
// pp dp_replicate dp_shard ep cp tp is the world counts ep as a factor of its own, and becomes dp_shard ep.
// Reports every violated equation with the nearest legal values, for `experts` experts (0: any number); then returns
// nothing.
std::optional<MeshShape> resolve_mesh(const MeshDeck& deck, std::int64_t world, Report& report,
                                      std::int64_t experts = 0);
// The deck's mesh on `world` ranks, or the report thrown as one BadInput.
MeshShape resolve_mesh(const MeshDeck& deck, std::int64_t world);

// The fewest ranks that the deck's mesh asks for: dp_shard -1 counts as 1.
std::int64_t ranks_of(const MeshDeck& deck);

// A table for people: axis, extent, stride, the ranks of `rank`'s group, the axis' traffic; both views (the expert one
// only where it differs).
std::string mesh_table(const MeshShape& mesh, int rank);

// Groups of ranks that follow from the model beside the mesh's axes.
struct MeshGroups {
  int kv_copies = 1;              // tp neighbours that hold the same key and value heads
  std::vector<int> table_stages;  // pp coordinates that hold the token table
  bool experts = false;           // the expert view's groups are wanted
  bool matrices = false;          // the groups of optimizers that update whole matrices
  bool whole = true;              // gradients are summed over all that hold a unit: ZeRO 0
  bool sharded = true;            // or over shards and replicas, and parameters are gathered: ZeRO 1 to 3
  bool expert_adapters = false;   // matrices of experts that all of etp have whole are trained
  int blocks = 0;        // of a collective beside products, at most; 0: a default (machine.communication_blocks)
  bool cp_pairs = true;  // any two ranks of cp exchange rows, not only those of a level
};

}  // namespace forge

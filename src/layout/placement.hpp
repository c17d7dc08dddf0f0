#pragma once

#include <optional>
#include <vector>

#include "layout/boxes.hpp"
#include "layout/grid.hpp"

namespace forge {

// What one mesh axis does to a tensor.
struct AxisSplit {
  int ranks = 1;             // extent of the mesh axis
  int dim = -1;              // the dimension it cuts; -1: every rank holds all (replicated)
  int pieces = 0;            // cut into so many pieces, ranks / pieces neighbours hold the same one; 0 = ranks
  std::int64_t granule = 1;  // a piece holds whole granules (a head is head_dim rows)

  static AxisSplit replicate(int ranks) { return {ranks, -1, 1, 1}; }
  static AxisSplit cut(int ranks, int dim, std::int64_t granule = 1) { return {ranks, dim, 0, granule}; }
  // K heads on more than K ranks: K pieces, each held by ranks / K neighbours.
  static AxisSplit cut_or_copy(int ranks, int dim, std::int64_t heads, std::int64_t granule);
};

// Where the elements of a tensor of a given (unpadded) shape stand on the ranks of a grid of mesh axes, one AxisSplit
// per axis, slowest first. Each dimension is cut by at most one axis. Pieces have one size; where the granules do not
// divide, the last pieces are padded at their end, and may hold nothing but padding. The same everywhere: a pure
// function.
class Placement {
 public:
  Placement(Extents shape, std::vector<AxisSplit> axes);

  const Extents& shape() const { return shape_; }
  int ranks() const { return grid_.size(); }
  const Extents& local_shape() const { return local_; }  // padding included; equal on all ranks
  bool padded() const;                                   // some rank holds padding

  Box box(int rank) const;  // what the rank holds of the tensor, without padding; extents 0: only padding
  std::optional<Extents> to_local(int rank, const Extents& global) const;  // empty: the rank does not hold it
  std::optional<Extents> to_global(int rank, const Extents& local) const;  // empty: padding

  std::vector<int> copies_of(int rank) const;  // all ranks with the same piece, ascending; their gradients are summed
  bool owns(int rank) const { return copies_of(rank).front() == rank; }
  int owner(const Extents& global) const;  // the one rank that counts for norms and checkpoints

  // The parts of the tensor that a range of the rank's local row-major order holds (a flat shard of it), as boxes of
  // the whole tensor in that order; padding is left out.
  std::vector<Box> boxes_of_local(int rank, const Range& local) const;

 private:
  // Along the dimension that `axis` cuts: elements per piece, padding included.
  std::int64_t piece_extent(const AxisSplit& axis) const;
  int piece_of(int rank, int axis) const;

  Extents shape_, local_;
  std::vector<AxisSplit> axes_;
  Grid grid_;
};

}  // namespace forge

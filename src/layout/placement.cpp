#include "layout/placement.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace forge {

namespace {

Grid grid_of(const std::vector<AxisSplit>& axes) {
  std::vector<int> extents;
  for (const AxisSplit& axis : axes) extents.push_back(axis.ranks);
  return Grid(extents);
}

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

AxisSplit AxisSplit::cut_or_copy(int ranks, int dim, std::int64_t heads, std::int64_t granule) {
  if (heads >= ranks) return cut(ranks, dim, granule);
  return {ranks, dim, static_cast<int>(heads), granule};
}

Placement::Placement(Extents shape, std::vector<AxisSplit> axes)
    : shape_(std::move(shape)), local_(shape_), axes_(std::move(axes)), grid_(grid_of(axes_)) {
  std::vector<bool> cut(shape_.size(), false);
  for (AxisSplit& axis : axes_) {
    if (axis.dim < 0) {
      axis.pieces = 1;
      continue;
    }
    if (axis.pieces == 0) axis.pieces = axis.ranks;
    require(axis.dim < static_cast<int>(shape_.size()) && !cut[at(axis.dim)], "placement: a dimension is cut twice");
    require(axis.ranks % axis.pieces == 0, "placement: the pieces do not divide the ranks");
    require(axis.granule >= 1 && shape_[at(axis.dim)] % axis.granule == 0, "placement: a granule is cut");
    cut[at(axis.dim)] = true;
    local_[at(axis.dim)] = piece_extent(axis);
  }
}

std::int64_t Placement::piece_extent(const AxisSplit& axis) const {
  return flat_shard_size(shape_[at(axis.dim)], axis.pieces, axis.granule);
}

int Placement::piece_of(int rank, int axis) const {
  const AxisSplit& split = axes_[at(axis)];
  return grid_.coordinate(rank, axis) / (split.ranks / split.pieces);
}

bool Placement::padded() const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const AxisSplit& axis) {
    return axis.dim >= 0 && piece_extent(axis) * axis.pieces != shape_[at(axis.dim)];
  });
}

Box Placement::box(int rank) const {
  Box box{Extents(shape_.size(), 0), shape_};
  for (int a = 0; a < grid_.axes(); ++a) {
    const AxisSplit& axis = axes_[at(a)];
    if (axis.dim < 0) continue;
    const Range part = flat_shard(shape_[at(axis.dim)], axis.pieces, piece_of(rank, a), axis.granule);
    box.offset[at(axis.dim)] = part.begin;
    box.extent[at(axis.dim)] = part.size();
  }
  return box;
}

std::optional<Extents> Placement::to_local(int rank, const Extents& global) const {
  const Box held = box(rank);
  if (!held.contains(global)) return std::nullopt;
  Extents local = global;
  for (std::size_t d = 0; d < local.size(); ++d) local[d] -= held.offset[d];
  return local;
}

std::optional<Extents> Placement::to_global(int rank, const Extents& local) const {
  const Box held = box(rank);
  Extents global = local;
  for (std::size_t d = 0; d < global.size(); ++d) {
    if (local[d] < 0 || local[d] >= held.extent[d]) return std::nullopt;
    global[d] += held.offset[d];
  }
  return global;
}

std::vector<int> Placement::copies_of(int rank) const {
  std::vector<int> copies;
  for (int other = 0; other < ranks(); ++other) {
    bool same = true;
    for (int a = 0; a < grid_.axes(); ++a) same &= piece_of(other, a) == piece_of(rank, a);
    if (same) copies.push_back(other);
  }
  return copies;
}

int Placement::owner(const Extents& global) const {
  std::vector<int> coordinates;
  for (const AxisSplit& axis : axes_) {
    const std::int64_t piece = axis.dim < 0 ? 0 : global[at(axis.dim)] / piece_extent(axis);
    coordinates.push_back(static_cast<int>(piece) * (axis.ranks / axis.pieces));
  }
  return grid_.rank_of(coordinates);
}

std::vector<Box> Placement::boxes_of_local(int rank, const Range& local) const {
  const Box held = box(rank);
  const Box unpadded{Extents(shape_.size(), 0), held.extent};
  std::vector<Box> boxes;
  for (const Box& part : boxes_of(local_, local)) {
    Box clipped = intersection(part, unpadded);
    if (clipped.size() == 0) continue;
    for (std::size_t d = 0; d < shape_.size(); ++d) clipped.offset[d] += held.offset[d];
    boxes.push_back(clipped);
  }
  return boxes;
}

}  // namespace forge

#pragma once

#include <vector>

#include "core/to_size.hpp"

namespace forge {

// A set of a grid's axes: bit a stands for axis a.
using AxisBits = unsigned;

// Ranks 0 … size-1 on a grid, row-major: the last axis is the fastest. At most 31 axes.
class Grid {
 public:
  explicit Grid(std::vector<int> extents);  // each at least 1

  int axes() const { return static_cast<int>(extents_.size()); }
  int extent(int axis) const { return extents_[to_size(axis)]; }
  int stride(int axis) const;  // ranks between neighbours along the axis
  int size() const;
  int coordinate(int rank, int axis) const { return rank / stride(axis) % extent(axis); }

  // The ranks that differ from `rank` in the given axes only, `rank` included, ascending.
  std::vector<int> group_of(int rank, AxisBits axes) const;
  int group_size(AxisBits axes) const;
  int index_in_group(int rank, AxisBits axes) const;  // the position of `rank` in group_of(rank, axes)
  // A number for the group, equal on its members and different between groups: 0 … size / group_size - 1.
  int group_number(int rank, AxisBits axes) const { return index_in_group(rank, ~axes & all_axes()); }
  AxisBits all_axes() const { return (1u << extents_.size()) - 1; }

 private:
  std::vector<int> extents_;
};

}  // namespace forge

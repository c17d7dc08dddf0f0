#include "layout/grid.hpp"

#include <utility>

#include "core/error.hpp"

namespace forge {

Grid::Grid(std::vector<int> extents) : extents_(std::move(extents)) {
  require(extents_.size() < 32, "grid: too many axes");
  for (const int extent : extents_) require(extent >= 1, "grid: an extent is less than 1");
}

int Grid::stride(int axis) const {
  int stride = 1;
  for (int a = axes() - 1; a > axis; --a) stride *= extent(a);
  return stride;
}

int Grid::size() const {
  return group_size(all_axes());
}

std::vector<int> Grid::group_of(int rank, AxisBits axes) const {
  require(rank >= 0 && rank < size(), "grid: no such rank");
  std::vector<int> group{rank};
  for (int a = 0; a < this->axes(); ++a) {  // slow axes first, so that the list stays ascending
    if (!(axes >> a & 1u)) continue;
    std::vector<int> wider;
    for (const int member : group)
      for (int c = 0; c < extent(a); ++c) wider.push_back(member + (c - coordinate(member, a)) * stride(a));
    group = std::move(wider);
  }
  return group;
}

int Grid::group_size(AxisBits axes) const {
  int size = 1;
  for (int a = 0; a < this->axes(); ++a)
    if (axes >> a & 1u) size *= extent(a);
  return size;
}

int Grid::index_in_group(int rank, AxisBits axes) const {
  int index = 0;
  for (int a = 0; a < this->axes(); ++a)
    if (axes >> a & 1u) index = index * extent(a) + coordinate(rank, a);
  return index;
}

}  // namespace forge

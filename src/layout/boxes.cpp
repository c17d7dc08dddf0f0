#include "layout/boxes.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace forge {

std::int64_t element_count(const Extents& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::int64_t flat_index(const Extents& shape, const Extents& index) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

Extents index_at(const Extents& shape, std::int64_t flat) {
  Extents index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

Range intersection(const Range& a, const Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

void append(std::vector<Range>& ranges, const Range& range) {
  if (range.empty()) return;
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

bool Box::contains(const Extents& index) const {
  for (std::size_t d = 0; d < offset.size(); ++d)
    if (index[d] < offset[d] || index[d] >= offset[d] + extent[d]) return false;
  return true;
}

Box intersection(const Box& a, const Box& b) {
  Box result;
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const Range range =
        intersection({a.offset[d], a.offset[d] + a.extent[d]}, {b.offset[d], b.offset[d] + b.extent[d]});
    result.offset.push_back(range.begin);
    result.extent.push_back(range.size());
  }
  return result;
}

std::int64_t flat_shard_size(std::int64_t elements, int shards, std::int64_t alignment) {
  require(elements >= 0 && shards >= 1 && alignment >= 1, "layout: a shard of nothing");
  const std::int64_t even = (elements + shards - 1) / shards;
  return (even + alignment - 1) / alignment * alignment;
}

Range flat_shard(std::int64_t elements, int shards, int index, std::int64_t alignment) {
  const std::int64_t size = flat_shard_size(elements, shards, alignment);
  return {std::min(elements, index * size), std::min(elements, (index + 1) * size)};
}

std::vector<Box> boxes_of(const Extents& shape, const Range& range) {
  std::vector<Box> boxes;
  if (range.empty()) return boxes;
  require(range.begin >= 0 && range.end <= element_count(shape), "layout: a range outside of its tensor");
  const std::size_t n = shape.size();
  if (n == 0) return {Box{}};
  // Greedy from the front: the longest run of whole slabs along some dimension that starts at `begin` and fits. First
  // the slabs grow from the last dimension to the first (n - 1 boxes at most), then they shrink again.
  for (std::int64_t begin = range.begin; begin < range.end;) {
    const Extents index = index_at(shape, begin);
    std::size_t dim = n - 1;
    std::int64_t slab = 1;  // elements of one step along dim
    while (dim > 0 && index[dim] == 0 && begin + slab * shape[dim] <= range.end) slab *= shape[dim--];
    const std::int64_t steps = std::min((range.end - begin) / slab, shape[dim] - index[dim]);
    Box box{index, Extents(n, 1)};
    box.extent[dim] = steps;
    for (std::size_t d = dim + 1; d < n; ++d) box.extent[d] = shape[d];
    boxes.push_back(box);
    begin += steps * slab;
  }
  return boxes;
}

}  // namespace forge

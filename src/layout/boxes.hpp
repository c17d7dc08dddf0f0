#pragma once

#include <cstdint>
#include <vector>

namespace forge {

using Extents = std::vector<std::int64_t>;  // of a tensor, or an index into it

std::int64_t element_count(const Extents& shape);                     // 1 for a scalar
std::int64_t flat_index(const Extents& shape, const Extents& index);  // row-major
Extents index_at(const Extents& shape, std::int64_t flat);            // its inverse

// Elements begin … end-1 of a row-major order.
struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

Range intersection(const Range& a, const Range& b);  // {x, x} where they do not meet
// Appends a range to a list; extends the last one where it ends there; leaves an empty one out.
void append(std::vector<Range>& ranges, const Range& range);

// A rectangular part of a tensor.
struct Box {
  Extents offset, extent;

  std::int64_t size() const { return element_count(extent); }
  bool contains(const Extents& index) const;
  friend bool operator==(const Box&, const Box&) = default;
};

Box intersection(const Box& a, const Box& b);  // extents 0 where they do not meet

// Elements per shard when `elements` are cut into `shards` equal ranges of a buffer padded at its end; a multiple of
// `alignment`.
std::int64_t flat_shard_size(std::int64_t elements, int shards, std::int64_t alignment = 1);

// Shard i's part of the unpadded elements: equal ranges, the last ones shorter or empty.
Range flat_shard(std::int64_t elements, int shards, int index, std::int64_t alignment = 1);

// The boxes that make up a range of a tensor's row-major order, in that order and without overlap: at most 2n - 1 in n
// dimensions (a scalar has one).
std::vector<Box> boxes_of(const Extents& shape, const Range& range);

}  // namespace forge

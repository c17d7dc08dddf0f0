#include "checkpoint/tensor_parts.hpp"

#include <algorithm>
#include <cstring>

#include "core/to_size.hpp"

namespace forge {

namespace {

// Element of the box's own order at which an index of the whole tensor stands.
std::int64_t place_of(const Box& box, const Extents& index) {
  std::int64_t place = 0;
  for (std::size_t d = 0; d < index.size(); ++d) place = place * box.extent[d] + index[d] - box.offset[d];
  return place;
}

}  // namespace

void copy_part(const Box& part, const Box& from, const std::byte* source, const Box& to, std::byte* target,
               std::size_t size) {
  if (part.size() == 0) return;
  const std::size_t n = part.extent.size();
  // From dimension `whole` on, the part's rows follow each other in both memories: they are copied at once.
  std::size_t whole = n;
  std::int64_t run = 1;
  while (whole > 0) {
    --whole;
    run *= part.extent[whole];
    if (part.extent[whole] != from.extent[whole] || part.extent[whole] != to.extent[whole]) break;
  }
  const auto bytes = to_size(run) * size;
  Extents index = part.offset;
  for (;;) {
    std::memcpy(target + to_size(place_of(to, index)) * size, source + to_size(place_of(from, index)) * size, bytes);
    std::size_t d = whole;
    while (d > 0) {
      --d;
      if (++index[d] < part.offset[d] + part.extent[d]) break;
      index[d] = part.offset[d];
      if (d == 0) return;
    }
    if (whole == 0) return;
  }
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.offset.size(); ++d)
    if (a.offset[d] >= b.offset[d] + b.extent[d] || b.offset[d] >= a.offset[d] + a.extent[d]) return false;
  return true;
}

Box enclosing(const Box& a, const Box& b) {
  Box box = a;
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::int64_t end = std::max(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    box.offset[d] = std::min(a.offset[d], b.offset[d]);
    box.extent[d] = end - box.offset[d];
  }
  return box;
}

std::vector<Box> boxes_within(const Box& box, const Range& range) {
  std::vector<Box> boxes = boxes_of(box.extent, range);
  for (Box& b : boxes)
    for (std::size_t d = 0; d < b.offset.size(); ++d) b.offset[d] += box.offset[d];
  return boxes;
}

std::vector<Box> strips_of(const Box& box, std::int64_t strip) {
  if (strip <= 0 || box.extent.empty()) return {box};
  const std::size_t last = box.extent.size() - 1;
  const std::int64_t end = box.offset[last] + box.extent[last];
  std::vector<Box> strips;
  for (std::int64_t begin = box.offset[last]; begin < end;) {
    const std::int64_t next = std::min(end, (begin / strip + 1) * strip);
    Box part = box;
    part.offset[last] = begin;
    part.extent[last] = next - begin;
    strips.push_back(part);
    begin = next;
  }
  return strips;
}

}  // namespace forge

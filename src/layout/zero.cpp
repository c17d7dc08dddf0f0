#include "layout/zero.hpp"

#include <algorithm>

namespace forge {

std::vector<UnitBufferSpec> unit_buffers(const LocalUnit& unit, const Precision& p, const Zero& zero,
                                         StorageKind kind) {
  const std::int64_t n = unit.elements, state = zero.state_of(unit).size();
  const bool one_type = p.compute == p.storage;
  std::vector<UnitBufferSpec> list;
  // One type: the master weights are a part of the whole unit's place, where that exists.
  if (zero.keeps_whole())
    list.push_back({UnitBuf::whole, Category::parameters, n, p.compute});
  else if (!one_type)
    list.push_back({UnitBuf::copy, Category::parameters, state, p.compute});
  if (!one_type || !zero.keeps_whole()) list.push_back({UnitBuf::master, Category::parameters, state, p.storage});
  if (kind.gradients && zero.reduce_each) {
    list.push_back({UnitBuf::gradient, Category::gradients, state, p.accumulate});
    if (unit.vectors_begin < n)
      list.push_back({UnitBuf::vectors, Category::gradients, n - unit.vectors_begin, p.accumulate});
  } else if (kind.gradients) {
    list.push_back({UnitBuf::accumulator, Category::gradients, n, p.accumulate});
  }
  if (kind.moments)
    for (const UnitBuf id : {UnitBuf::m, UnitBuf::v}) list.push_back({id, Category::optimizer, state, p.moment});
  return list;
}

namespace {

std::vector<UnitBufferSpec> pool_of(const std::vector<LocalUnit>& units, UnitClass c, int buffers,
                                    UnitBufferSpec buffer) {
  for (const LocalUnit& unit : units)
    if (class_of(unit) == c) buffer.elements = std::max(buffer.elements, unit.elements);
  if (buffer.elements == 0) return {};
  return std::vector<UnitBufferSpec>(static_cast<std::size_t>(buffers), buffer);
}

}  // namespace

std::vector<UnitBufferSpec> gradient_pool(const std::vector<LocalUnit>& units, UnitClass c, const Precision& p,
                                          const Zero& zero, StorageKind kind) {
  if (!kind.gradients || !zero.reduce_each) return {};
  return pool_of(units, c, gradient_pool_buffers, {UnitBuf::accumulator, Category::gradients, 0, p.accumulate});
}

std::vector<UnitBufferSpec> parameter_pool(const std::vector<LocalUnit>& units, UnitClass c, const Precision& p,
                                           const Zero& zero) {
  if (zero.keeps_whole()) return {};
  return pool_of(units, c, parameter_pool_buffers(c), {UnitBuf::whole, Category::parameters, 0, p.compute});
}

std::vector<Range> counted_ranges(const LocalUnit& unit, const Zero& zero, bool counts_unit) {
  std::vector<Range> ranges;
  if (!counts_unit) return ranges;
  for (const LocalPiece& piece : unit.pieces) {
    if (!piece.owned) continue;
    const Range part = intersection({piece.offset, piece.offset + piece.box.size()}, zero.shard_of(unit));
    if (part.empty()) continue;
    if (!ranges.empty() && ranges.back().end == part.begin)
      ranges.back().end = part.end;
    else
      ranges.push_back(part);
  }
  return ranges;
}

}  // namespace forge

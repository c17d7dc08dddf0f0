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

std::int64_t largest_of(const std::vector<LocalUnit>& units) {
  std::int64_t largest = 0;
  for (const LocalUnit& unit : units) largest = std::max(largest, unit.elements);
  return largest;
}

}  // namespace

UnitBufferSpec gradient_pool_buffer(const std::vector<LocalUnit>& units, const Precision& p) {
  return {UnitBuf::accumulator, Category::gradients, largest_of(units), p.accumulate};
}

UnitBufferSpec parameter_pool_buffer(const std::vector<LocalUnit>& units, const Precision& p) {
  return {UnitBuf::whole, Category::parameters, largest_of(units), p.compute};
}

bool has_gradient_pool(const Zero& zero, StorageKind kind) {
  return kind.gradients && zero.reduce_each;
}

bool has_parameter_pool(const Zero& zero) {
  return !zero.keeps_whole();
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

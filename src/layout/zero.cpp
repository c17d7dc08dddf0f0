#include "layout/zero.hpp"

#include <algorithm>

namespace forge {

StorageKind storage_kind(RunKind kind, const OptimizerState& optimizer) {
  return {kind != RunKind::evaluation, kind == RunKind::training ? optimizer : OptimizerState{}};
}

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
  for (const StateBuffer& buffer : kind.optimizer)
    list.push_back({UnitBuf::optimizer, Category::optimizer, state, buffer.type});
  return list;
}

PoolClass pool_of(const LocalUnit& unit) {
  switch (unit.kind) {
    case UnitKind::token_table:
    case UnitKind::position_table:
    case UnitKind::output:
      return PoolClass::tables;
    case UnitKind::experts:
      return PoolClass::experts;
    default:
      return PoolClass::blocks;
  }
}

namespace {

// `others`: buffers of a pool that isn't the tables'. Of tables, those of tokens and positions are used together.
PoolSize pool_size(const std::vector<LocalUnit>& units, PoolClass c, int others) {
  PoolSize size;
  bool positions = false;
  for (const LocalUnit& unit : units) {
    positions = positions || unit.kind == UnitKind::position_table;
    if (pool_of(unit) == c) size.elements = std::max(size.elements, unit.elements);
  }
  if (size.elements > 0) size.buffers = c == PoolClass::tables ? (positions ? 2 : 1) : others;
  return size;
}

const Zero& zero_of(const ZeroOfClass& zero, PoolClass c) {
  return zero[static_cast<std::size_t>(c == PoolClass::experts ? UnitClass::experts : UnitClass::dense)];
}

}  // namespace

PoolSize gradient_pool(const std::vector<LocalUnit>& units, PoolClass c, const ZeroOfClass& zero, bool gradients) {
  if (!gradients || !zero_of(zero, c).reduce_each) return {};
  return pool_size(units, c, 2);
}

PoolSize parameter_pool(const std::vector<LocalUnit>& units, PoolClass c, const ZeroOfClass& zero) {
  if (zero_of(zero, c).keeps_whole()) return {};
  return pool_size(units, c, 2);
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

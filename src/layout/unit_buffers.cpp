#include "layout/unit_buffers.hpp"

#include <algorithm>

namespace forge {

StorageKind storage_kind(RunKind kind, const OptimizerState& optimizer) {
  return {kind != RunKind::evaluation, kind == RunKind::training ? optimizer : OptimizerState{}};
}

Range kept_range(const LocalUnit& unit, KeptOf of) {
  const Range matrices = unit.whole_matrices();
  switch (of) {
    case KeptOf::all:
      return unit.state();
    case KeptOf::whole_matrices:
      return intersection(unit.state(), matrices);
    case KeptOf::others:
      return intersection(unit.state(), {matrices.end, unit.elements});
    case KeptOf::vectors:
      return intersection(unit.state(), {unit.vectors_begin, unit.elements});
    case KeptOf::lines:
      return {};
  }
  return {};
}

std::vector<UnitBufferSpec> unit_buffers(const LocalUnit& unit, const Precision& p, StorageKind kind) {
  const Zero& zero = unit.zero;
  const std::int64_t n = unit.elements, state = unit.state().size();
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
    list.push_back({UnitBuf::optimizer, Category::optimizer, kept_range(unit, buffer.of).size(), buffer.type});
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

// Of the units that take turns. Of tables, those of tokens and positions are used together.
template <class TakesTurns>
PoolSize pool_size(const std::vector<LocalUnit>& units, PoolClass c, TakesTurns takes_turns) {
  PoolSize size;
  for (const LocalUnit& unit : units) {
    if (pool_of(unit) != c || !takes_turns(unit.zero)) continue;
    size.elements = std::max(size.elements, unit.elements);
    size.buffers = c != PoolClass::tables || unit.kind == UnitKind::position_table ? 2 : std::max(size.buffers, 1);
  }
  return size;
}

}  // namespace

PoolSize gradient_pool(const std::vector<LocalUnit>& units, PoolClass c) {
  return pool_size(units, c, [](const Zero& zero) { return zero.reduce_each; });
}

PoolSize parameter_pool(const std::vector<LocalUnit>& units, PoolClass c) {
  return pool_size(units, c, [](const Zero& zero) { return !zero.keeps_whole(); });
}

}  // namespace forge

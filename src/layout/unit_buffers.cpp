#include "layout/unit_buffers.hpp"

#include <algorithm>

namespace forge {

StorageKind storage_kind(RunKind kind, const OptimizerState& optimizer) {
  return {kind != RunKind::evaluation, kind == RunKind::training ? optimizer : OptimizerState{}};
}

namespace {

// The parts of the rank's state whose pieces are updated whole, or are not.
std::vector<Range> ranges_by_rule(const LocalUnit& unit, bool whole) {
  std::vector<Range> ranges;
  for (std::size_t p = 0; p < unit.pieces.size(); ++p)
    if (unit.rule_of(p).whole == whole) append(ranges, intersection(unit.range_of(p), unit.state()));
  return ranges;
}

// Of the units that take turns. Of tables, those of tokens and positions are used together.
template <class TakesTurns>
PoolSize pool_size(const std::vector<LocalUnit>& units, PoolClass c, TakesTurns takes_turns) {
  PoolSize size;
  for (const LocalUnit& unit : units) {
    if (pool_of(unit) != c || !takes_turns(unit)) continue;
    size.elements = std::max(size.elements, unit.elements);
    size.buffers = c != PoolClass::tables || unit.kind == UnitKind::position_table ? 2 : std::max(size.buffers, 1);
  }
  return size;
}

}  // namespace

std::vector<Range> kept_ranges(const LocalUnit& unit, KeptOf of) {
  switch (of) {
    case KeptOf::all:
      return {unit.state()};
    case KeptOf::whole_matrices:
      return ranges_by_rule(unit, true);
    case KeptOf::others:
      return ranges_by_rule(unit, false);
    case KeptOf::vectors:
      return {intersection(unit.state(), {unit.vectors_begin, unit.elements})};
  }
  return {};
}

std::int64_t kept_elements(const LocalUnit& unit, KeptOf of) {
  if (unit.frozen) return 0;
  std::int64_t sum = 0;
  for (const Range& range : kept_ranges(unit, of)) sum += range.size();
  return sum;
}

std::vector<UnitBufferSpec> unit_buffers(const LocalUnit& unit, const Precision& p, StorageKind kind) {
  const Zero& zero = unit.zero;
  const std::int64_t n = unit.elements, state = unit.state().size();
  const bool one_type = p.compute == p.storage;
  std::vector<UnitBufferSpec> list;
  // One type: the master weights are a part of the whole unit's place, where that exists.
  if (zero.keeps_whole())
    list.push_back({UnitBuf::whole, Category::parameters, n, p.compute});
  else if (!one_type || unit.frozen)
    list.push_back({UnitBuf::copy, Category::parameters, state, p.compute});
  if (unit.frozen) return list;
  if (!one_type || !zero.keeps_whole()) list.push_back({UnitBuf::master, Category::parameters, state, p.storage});
  const DType sums = zero.rounds_gradients ? p.compute : p.accumulate;
  if (kind.gradients && zero.reduce_each) list.push_back({UnitBuf::gradient, Category::gradients, state, sums});
  if (kind.gradients && !zero.reduce_each) list.push_back({UnitBuf::accumulator, Category::gradients, n, sums});
  if (kind.gradients && zero.adds_in_buffers() && unit.vectors_begin < n)
    list.push_back({UnitBuf::vectors, Category::gradients, n - unit.vectors_begin, p.accumulate});
  for (const StateBuffer& buffer : kind.optimizer)
    if (buffer.is_of_elements())
      list.push_back({UnitBuf::optimizer, Category::optimizer, kept_elements(unit, buffer.of), buffer.type});
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
    case UnitKind::adapter:
      return PoolClass::adapters;
    case UnitKind::expert_adapter:
      return PoolClass::expert_adapters;
    default:
      return PoolClass::blocks;
  }
}

// Sums that stay on the rank have left their place when the next unit asks for it.
PoolSize gradient_pool(const std::vector<LocalUnit>& units, PoolClass c) {
  PoolSize size =
      pool_size(units, c, [](const LocalUnit& unit) { return unit.zero.adds_in_buffers() && !unit.frozen; });
  const bool shared = std::any_of(units.begin(), units.end(), [&](const LocalUnit& unit) {
    return pool_of(unit) == c && !unit.frozen && (unit.zero.reduce_each || unit.zero.shards * unit.zero.replicas > 1);
  });
  if (!shared && c != PoolClass::tables) size.buffers = std::min(size.buffers, 1);
  size.of_forward = c == PoolClass::tables && size.buffers > 0 && tracks_of(units) > 1;
  size.buffers += size.of_forward;
  return size;
}

std::int64_t exchanged_gradients(const std::vector<LocalUnit>& units) {
  std::int64_t most = 0;
  for (const LocalUnit& unit : units)
    if (unit.zero.nodes > 1 && !unit.frozen) most = std::max(most, unit.zero.nodes * unit.shard().size());
  return most;
}

PoolSize parameter_pool(const std::vector<LocalUnit>& units, PoolClass c) {
  PoolSize size = pool_size(units, c, [](const LocalUnit& unit) { return !unit.zero.keeps_whole(); });
  size.buffers *= tracks_of(units);
  return size;
}

int tracks_of(const std::vector<LocalUnit>& units) {
  return units.empty() ? 1 : units.front().zero.tracks;
}

}  // namespace forge

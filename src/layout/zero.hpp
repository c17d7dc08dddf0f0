#pragma once

#include <array>
#include <vector>

#include "core/category.hpp"
#include "core/types.hpp"
#include "layout/local_units.hpp"
#include "model/optimizer_state.hpp"

namespace forge {

// How the ranks of a shard group (dp_shard x cp) share a unit's state (Rajbhandari et al. 2020, "ZeRO").
struct Zero {
  int stage = 0;               // 1: optimizer state, 2: also gradients, 3: also parameters
  bool reduce_each = false;    // train.accumulate sharded: gradients are reduced after each microbatch into the shard
  bool keep_gathered = false;  // train.gather step: stage 3 gathers a unit once a step
  int shards = 1, shard = 0;

  // Whether the rank's master weights, moments and reduced gradients are a shard of the unit.
  bool shards_state() const { return stage >= 1; }
  // Whether the unit's compute weights come from other ranks, too.
  bool gathers() const { return shards_state() && shards > 1; }
  // Whether the whole unit's compute weights have a place of their own for the whole run.
  bool keeps_whole() const { return stage < 3 || keep_gathered || shards == 1; }
  // This rank's range of a unit's flat buffer.
  Range shard_of(const LocalUnit& unit) const {
    const std::int64_t size = unit.elements / shards;
    return {size * shard, size * (shard + 1)};
  }
  Range state_of(const LocalUnit& unit) const { return shards_state() ? shard_of(unit) : Range{0, unit.elements}; }
};

// What a run keeps beside the weights.
struct StorageKind {
  bool gradients = true;
  OptimizerState optimizer{};
};
// What a rank does: evaluation needs no gradients, `gradients` no optimizer.
enum class RunKind { training, gradients, evaluation };
StorageKind storage_kind(RunKind kind, const OptimizerState& optimizer);

// The buffers of a unit. parallel/storage.hpp allocates them from this list, plan/ sums it.
enum class UnitBuf {
  master,       // storage type: the range of Zero::state_of
  whole,        // compute type: the whole unit
  copy,         // compute type: the shard
  gradient,     // the shard, where microbatches are reduced into it
  accumulator,  // the whole unit: sums of this rank's microbatches
  vectors,      // sums of the vectors' gradients, where matrices are reduced each microbatch
  optimizer,    // what the optimizer keeps of the range of Zero::state_of, in the order of its declaration
  count_,
};
struct UnitBufferSpec {
  UnitBuf id;
  Category category;
  std::int64_t elements;
  DType type;

  std::size_t bytes() const { return static_cast<std::size_t>(elements) * size_of(type); }
};
std::vector<UnitBufferSpec> unit_buffers(const LocalUnit& unit, const Precision& precision, const Zero& zero,
                                         StorageKind kind);

// Dense units and experts are shared by different groups of ranks, and differ in size.
enum class UnitClass { dense, experts };
inline constexpr int unit_classes = 2;
inline UnitClass class_of(const LocalUnit& unit) {
  return unit.kind == UnitKind::experts ? UnitClass::experts : UnitClass::dense;
}
using ZeroOfClass = std::array<Zero, unit_classes>;
inline const Zero& zero_of(const ZeroOfClass& zero, const LocalUnit& unit) {
  return zero[static_cast<std::size_t>(class_of(unit))];
}

// Units take turns in a few buffers of their largest one's size: gradients on their way into the shard, and gathered
// parameters (in use, and one ahead of use). Tables and the output matrix are much larger than a block, and seldom
// used: they have fewer.
enum class PoolClass { blocks, tables, experts };
inline constexpr int pool_classes = 3;
PoolClass pool_of(const LocalUnit& unit);

struct PoolSize {
  int buffers = 0;
  std::int64_t elements = 0;  // of each
};
PoolSize gradient_pool(const std::vector<LocalUnit>& units, PoolClass c, const ZeroOfClass& zero, bool gradients);
PoolSize parameter_pool(const std::vector<LocalUnit>& units, PoolClass c, const ZeroOfClass& zero);

// The parts of a unit that this rank counts in norms and writes to checkpoints: what it owns of its shard. Every
// element of the model is counted by exactly one rank of a replica. `counts_unit` false: another stage counts it (a
// tied table).
std::vector<Range> counted_ranges(const LocalUnit& unit, const Zero& zero, bool counts_unit);

}  // namespace forge

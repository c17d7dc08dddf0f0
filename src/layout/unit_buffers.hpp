#pragma once

#include <vector>

#include "core/category.hpp"
#include "core/to_size.hpp"
#include "core/types.hpp"
#include "layout/local_units.hpp"
#include "model/optimizer_state.hpp"

namespace forge {

// The memory of a run beside the weights.
struct StorageKind {
  bool gradients = true;
  OptimizerState optimizer{};
};
// The work of a rank: evaluation needs no gradients, `gradients` no optimizer.
enum class RunKind { training, gradients, evaluation };
StorageKind storage_kind(RunKind kind, const OptimizerState& optimizer);

// The buffers of a unit. parallel/storage.hpp allocates them from this list, plan/ sums it.
enum class UnitBuf {
  master,       // storage type: the range of LocalUnit::state
  whole,        // compute type: the whole unit
  copy,         // compute type: the shard; of a frozen unit in the place of master weights
  gradient,     // the shard, where microbatches are reduced into it
  accumulator,  // the whole unit: sums of this rank's microbatches
  vectors,      // sums of the vectors' gradients, where matrices of each microbatch have a buffer of a pool
  optimizer,    // the optimizer's states of kept_ranges(), in the order of its declaration; perhaps empty
  count_,
};
struct UnitBufferSpec {
  UnitBuf id;
  Category category;
  std::int64_t elements;
  DType type;

  std::size_t bytes() const { return to_size(elements) * size_of(type); }
};
// The elements of the unit that an optimizer's buffer has on this rank, one range behind the other.
std::vector<Range> kept_ranges(const LocalUnit& unit, KeptOf of);
std::int64_t kept_elements(const LocalUnit& unit, KeptOf of);
std::vector<UnitBufferSpec> unit_buffers(const LocalUnit& unit, const Precision& precision, StorageKind kind);

// Units take turns in a few buffers as large as the largest of them: gradients on their way into the shard, and
// gathered parameters (in use, and ahead of use). Tables and the output matrix are much larger than a block, and seldom
// used: they have fewer.
enum class PoolClass { blocks, tables, experts, adapters, expert_adapters };
inline constexpr int pool_classes = 5;
PoolClass pool_of(const LocalUnit& unit);

struct PoolSize {
  int buffers = 0;
  std::int64_t elements = 0;  // of each
  bool of_forward = false;    // the last one is for forward passes, beside backward ones
};
PoolSize gradient_pool(const std::vector<LocalUnit>& units, PoolClass c);
// Elements that the two-level sums of gradients exchange at a time: the most of a unit; 0: there are none.
std::int64_t exchanged_gradients(const std::vector<LocalUnit>& units);
// Of passes that run at once, forward ones have the first half of the buffers.
PoolSize parameter_pool(const std::vector<LocalUnit>& units, PoolClass c);
int tracks_of(const std::vector<LocalUnit>& units);

}  // namespace forge

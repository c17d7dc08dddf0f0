#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "core/category.hpp"
#include "core/to_size.hpp"
#include "layout/unit_buffers.hpp"
#include "model/buffers.hpp"
#include "plan/rank_share.hpp"

namespace forge {

// Memory of one rank, by category, at the moment of its peak.
struct MemoryPlan {
  std::array<std::size_t, category_count> bytes{};
  std::string peak;  // the phase of the step in which the peak is reached

  std::size_t& of(Category c) { return bytes[to_size(c)]; }
  std::size_t of(Category c) const { return bytes[to_size(c)]; }
  std::size_t total() const;
};

// Adds up the lists that nn/ and parallel/ allocate from, in their order of life: what stays for the run, the slots of
// the microbatches in flight, and the largest frame of any phase of the step. Equal to the rank's Arena::high_water(),
// to the byte. `schedule` is lowered, and so are those of a ramp's smaller batches.
MemoryPlan plan_memory(const BufferContext& context, const RankShare& share, const Schedule& schedule,
                       std::size_t library_bytes, RunKind purpose, const std::vector<Schedule>& smaller = {});

}  // namespace forge

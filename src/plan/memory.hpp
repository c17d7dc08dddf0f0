#pragma once

#include <vector>

#include "plan/memory_plan.hpp"

namespace forge {

// Adds up the lists that nn/ and parallel/ allocate from, in their order of life: buffers of the run, the slots of the
// microbatches in flight, and the largest frame of any phase of the step. Equal to the rank's Arena::high_water(), to
// the byte. `schedule` is lowered, and so are the schedules of a ramp's smaller batches.
MemoryPlan plan_memory(const BufferContext& context, const RankShare& share, const Schedule& schedule,
                       std::size_t library_bytes, RunKind purpose, const std::vector<Schedule>& smaller = {});

}  // namespace forge

#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "plan/memory_plan.hpp"
#include "plan/setup.hpp"
#include "plan/tasks.hpp"

namespace forge {

using CategoryBytes = std::array<std::size_t, category_count>;

// A rank's arena in the tasks of a step of the largest batch. The slots of microbatches are taken for the whole run:
// empty ones are counted apart.
struct MemoryCourse {
  std::vector<Task> tasks;          // of the gradients, then of the update
  std::vector<CategoryBytes> used;  // in each of them, by category
  std::vector<std::size_t> idle;    // in each of them: slots without contents
  std::size_t peak = 0;             // the first task in which the arena is fullest

  // The arena's bytes in a task; at most planned_memory's total, but for frames of a ramp's smaller batches alone.
  std::size_t bytes(std::size_t task) const;
};
// The course of the setup's rank.
MemoryCourse memory_course(const RunSetup& setup);
// The setup of the first rank of a pipeline rank.
RunSetup setup_of_stage(const RunSetup& setup, int pp_rank);

}  // namespace forge

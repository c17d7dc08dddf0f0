#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace forge {

// How long a stage sleeps instead of computing, and how much it hands on.
struct SleepTimes {
  std::chrono::microseconds forward{0}, backward_input{0}, backward_weight{0};
  std::int64_t elements = 1024;  // doubles of an activation

  std::chrono::microseconds of(Op op) const;
};

// The work of ranks in one step.
struct SleepRun {
  std::vector<std::vector<Action>> done;  // by rank: compute actions in the order they ended
  double seconds = 0;                     // from the common start until the last rank has ended
  double asleep = 0;                      // seconds that all ranks together were asked to sleep

  // Share of the ranks' time that was not asked-for sleep: late wake-ups count as idle.
  double idle_share() const { return 1 - asleep / (seconds * static_cast<double>(done.size())); }
};

// Executes a lowered schedule with one thread per rank: stages sleep, and their outputs go through
// parallel/transfers.hpp into the slots of their tasks, as in parallel/executor.hpp. Every activation and
// gradient carries the stage and microbatch that wrote it; a stage that reads another one's throws Error. The last of
// `steps` steps is returned.
SleepRun run_sleeping(const Schedule& lowered, const SleepTimes& times, int steps = 1);

}  // namespace forge

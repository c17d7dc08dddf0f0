#pragma once

#include <functional>
#include <vector>

#include "schedule/schedule.hpp"

namespace forge {

// Seconds (or any unit) that a compute action of a stage takes; called for F, B and W. Op::backward takes B + W.
using DurationOf = std::function<double(Op op, int stage)>;

// Durations that are alike on every stage.
DurationOf uniform_durations(double forward, double backward_input, double backward_weight);

struct Interval {
  double start = 0, end = 0;
};

// When every action of every rank runs if each rank follows its list without delay.
struct ScheduleTimes {
  std::vector<std::vector<Interval>> intervals;  // by rank and list position; start = end for all but compute
  std::vector<double> busy;                      // by rank: sum of compute
  double makespan = 0;

  // Idle fraction of all ranks' time: 1 - sum of busy / (ranks * makespan).
  double bubble_fraction() const;
};

// Transfers take `transfer` after the producer has ended; collectives take none. Throws Error where ranks wait for each
// other.
ScheduleTimes timeline(const Schedule& schedule, const DurationOf& duration, double transfer = 0);

}  // namespace forge

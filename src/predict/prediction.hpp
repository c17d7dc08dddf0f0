#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/setup.hpp"
#include "predict/machine.hpp"
#include "predict/step_program.hpp"

namespace forge {

// The time of a step of a deck on a machine, by a simulation of the tasks that the executor runs.
struct Prediction {
  double seconds = 0, low = 0, high = 0;  // of a step; the interval is the machine's uncertainty
  double tokens_per_second = 0;           // of a rank
  double mfu = 0, hfu = 0;                // without and with recomputation, of the peak
  double clock = 1;                       // that the limit of power leaves products and attention, a fraction
  // The pipeline rank whose compute stream is busy longest in a step, and its times.
  int stage = 0;
  std::array<double, cost_part_count> part{};  // seconds of its compute stream alone, by purpose
  double slowed = 0;                           // and beyond them, for links, multiprocessors or cores that others take
  std::array<double, lane_count> behind{};     // of its other streams
  std::array<double, lane_count> waited{};     // its compute stream idle for: the host (compute), and other streams
  double hidden = 0;                           // of the collectives on other streams, behind computation
  LinkSeconds wire{};                          // of each link, of the pipeline rank that needs it longest
  // Rows of the busiest ranks' experts over the mean, as far as the layout lets them differ, and in how many rounds.
  double expert_load = 1;
  std::int64_t expert_rounds = 1;
  std::vector<std::vector<Span>> spans;  // by pipeline rank; of the simulation
  std::vector<std::vector<Task>> tasks;  // by pipeline rank; the list that the spans' numbers index
};

// Measured seconds of a task's computation on a rank of a stage (train/replay.hpp), by the task's name and subject,
// without collectives.
using MeasuredTasks = std::map<std::pair<std::string, std::string>, double>;

// `setup`: of any rank. All ranks of a stage do the same. `measured`: of each pipeline rank, in the place of the
// machine's rates of products, attention, rows and the update; empty: none.
Prediction predict(const Machine& machine, const RunSetup& setup,
                   const std::vector<const MeasuredTasks*>& measured = {});

}  // namespace forge

#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "config/schedule_name.hpp"
#include "core/error.hpp"
#include "schedule/generate.hpp"
#include "schedule/lower.hpp"

namespace forge {

inline const std::vector<ScheduleName> all_names = [] {
  std::vector<ScheduleName> names;
  for (std::size_t i = 0; i < schedule_words.size(); ++i) names.push_back(static_cast<ScheduleName>(i));
  return names;
}();

// Every legal request with up to `ranks` ranks, `microbatches` microbatches, and (interleaved) `chunks` chunks.
inline std::vector<ScheduleRequest> legal_requests(int ranks, int microbatches, int chunks) {
  std::vector<ScheduleRequest> requests;
  for (const ScheduleName name : all_names)
    for (int pp = 1; pp <= ranks; ++pp)
      for (int m = 1; m <= microbatches; ++m)
        for (int c = 1; c <= (name == ScheduleName::interleaved ? chunks : 1); ++c) {
          const bool rule = c == 1 || m >= pp;  // groups of pp: M % pp < pp, so only M % pp == 0 is left
          if (rule && (c == 1 || m % pp == 0)) requests.push_back({name, pp, c, m});
        }
  return requests;
}

// These, and in pairs those whose schedules have them.
inline std::vector<ScheduleRequest> with_pairs(std::vector<ScheduleRequest> requests) {
  for (std::size_t i = 0, alone = requests.size(); i < alone; ++i) {
    if (!has_pairs(requests[i].name)) continue;
    requests.push_back(requests[i]);
    requests.back().pairs = true;
  }
  return requests;
}

inline std::string text_of(const ScheduleRequest& request) {
  return std::string(name_of(request.name)) + " pp " + std::to_string(request.ranks) + " chunks " +
         std::to_string(request.chunks) + " M " + std::to_string(request.microbatches) + " G " +
         std::to_string(request.group) + (request.pairs ? " in pairs" : "");
}

// Microbatches, summed over the rank's chunks, that stand between F and W (or B) at the same time, at most.
inline int microbatches_in_flight(const Schedule& schedule, int rank, bool until_weight = true) {
  int now = 0, most = 0;
  for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
    if (action.op == Op::forward) most = std::max(most, ++now);
    if (until_weight ? computes_weight_gradient(action.op) : computes_input_gradient(action.op)) --now;
  }
  return most;
}

inline std::string text_of(const std::vector<Action>& list) {
  std::string text;
  for (const Action& action : list) text += (text.empty() ? "" : ", ") + text_of(action);
  return text;
}

}  // namespace forge

#pragma once

#include "config/deck.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// The arguments of a generator. All of them work with one rank.
struct ScheduleRequest {
  ScheduleName name = default_schedule();
  int ranks = 1;         // pp
  int chunks = 1;        // schedule.virtual_stages: model chunks per rank; read by interleaved only (zb_v has two)
  int microbatches = 1;  // M
  int group = 0;         // interleaved: microbatches that pass a chunk before the next chunk; 0 = pp
  bool pairs = false;    // where has_pairs: an F and the backward pass behind it run at once (Action::paired)
};

// The compute actions (F, B, W, or B and W in one) of one step; lower() completes them. Throws BadInput, naming key,
// rule and nearest legal values, for numbers that the schedule's rule (config/schedule_name.hpp) does not allow.
Schedule generate(const ScheduleRequest& request);

}  // namespace forge

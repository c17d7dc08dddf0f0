#include "schedule/progress.hpp"

namespace forge {

Progress::Progress(const Schedule& schedule)
    : schedule_(&schedule),
      position_(to_size(schedule.ranks), 0),
      stage_(to_size(schedule.stages()), 0),
      forward_(to_size(schedule.stages() * schedule.microbatches), 0),
      backward_(forward_),
      sent_up_(forward_),
      sent_down_(forward_) {
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const StagePlacement& place = schedule.places[to_size(stage)];
    stage_[to_size(place.rank * schedule.chunks_per_rank + place.chunk)] = stage;
  }
}

bool Progress::finished() const {
  for (int rank = 0; rank < schedule_->ranks; ++rank)
    if (!finished(rank)) return false;
  return true;
}

// What `action` on `stage` reads and is not there yet, as text.
std::string Progress::missing(const Action& action, int stage) const {
  const int m = action.microbatch;
  const int last = schedule_->stages() - 1;
  const auto lacks = [&](const std::vector<std::uint8_t>& done, int s, const char* what) {
    return done[to_size(schedule_->index(s, m))]
               ? std::string()
               : what + std::string(" of stage ") + std::to_string(s) + ", microbatch " + std::to_string(m);
  };
  switch (action.op) {
    case Op::forward:
      return stage == 0 ? "" : lacks(forward_, stage - 1, "F");
    case Op::backward_input:
    case Op::backward: {
      const std::string own = lacks(forward_, stage, "F");
      return !own.empty() || stage == last ? own : lacks(backward_, stage + 1, "B");
    }
    case Op::backward_weight:
      return lacks(backward_, stage, "B");
    case Op::wait_recv_forward:
      return stage == 0 ? "" : lacks(sent_up_, stage - 1, "the send of the output");
    case Op::wait_recv_backward:
      return stage == last ? "" : lacks(sent_down_, stage + 1, "the send of the input gradient");
    default:
      return "";
  }
}

// The missing input of the rank's next action, or of either action of a pair.
std::string Progress::missing(int rank) const {
  const auto lacks = [&](const Action& action) {
    return missing(action, stage_[to_size(rank * schedule_->chunks_per_rank + action.chunk)]);
  };
  const std::string own = lacks(next(rank));
  return own.empty() && next(rank).paired ? lacks(list(rank)[to_size(position(rank)) + 1]) : own;
}

bool Progress::ready(int rank) const {
  return !finished(rank) && missing(rank).empty();
}

void Progress::advance(int rank) {
  const Action& action = next(rank);
  const int stage = stage_[to_size(rank * schedule_->chunks_per_rank + action.chunk)];
  const std::size_t cell = to_size(schedule_->index(stage, action.microbatch));
  if (action.op == Op::forward) forward_[cell] = 1;
  if (computes_input_gradient(action.op)) backward_[cell] = 1;
  if (action.op == Op::post_send_forward) sent_up_[cell] = 1;
  if (action.op == Op::post_send_backward) sent_down_[cell] = 1;
  ++position_[to_size(rank)];
}

std::string Progress::reason(int rank) const {
  if (finished(rank)) return "rank " + std::to_string(rank) + " is at its end";
  const Action& action = next(rank);
  return "rank " + std::to_string(rank) + " at action " + std::to_string(position(rank)) + ", " + text_of(action) +
         ", waits for " + missing(rank);
}

}  // namespace forge

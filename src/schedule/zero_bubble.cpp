#include "schedule/zero_bubble.hpp"

#include <algorithm>
#include <deque>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "schedule/progress.hpp"
#include "schedule/schedule_times.hpp"

namespace forge {

namespace {

using List = std::vector<Action>;

// One rank during the fill: its W's that wait, and how many pairs stand between F and W.
struct Filler {
  std::deque<Action> pending;
  int in_flight = 0;
  List list;

  void weight() {
    list.push_back(pending.front());
    pending.pop_front();
    --in_flight;
  }
  void place(const Action& action) {
    list.push_back(action);
    if (action.op == Op::forward) ++in_flight;
    if (action.op == Op::backward_input) pending.push_back({Op::backward_weight, action.chunk, action.microbatch});
  }
};

// The F, B, W of zb_v in the paper's phases, for rank r of p; what belongs to microbatches >= M is left out.
class VPhases {
 public:
  VPhases(int ranks, int rank, int microbatches) : microbatches_(microbatches) {
    const int whole = std::max(microbatches, 2 * ranks - 1);  // the phases are those of a full pipeline
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) add(Op::forward, 0);
    for (int i = 0; i < rank; ++i) add(Op::forward, 1), add(Op::forward, 0);
    for (int i = 0; i < ranks - rank; ++i) add(Op::forward, 1), add_both(1);
    while (next_[0][0] < whole || next_[1][0] < whole) {
      if (next_[0][0] < whole) add(Op::forward, 0);
      add_both(0);
      add(Op::forward, 1);
      add_both(1);
    }
    for (int i = 0; i < rank; ++i) add(Op::backward_input, 0), add(Op::backward_input, 1);
    for (int i = 0; i < ranks - rank; ++i) add_both(0);
    for (int chunk : {1, 0})
      while (next_[chunk][2] < whole) add(Op::backward_weight, chunk);
  }
  List list;

 private:
  void add(Op op, int chunk) {
    const int m = next_[chunk][static_cast<int>(op)]++;
    if (m < microbatches_) list.push_back({op, chunk, m});
  }
  void add_both(int chunk) { add(Op::backward_input, chunk), add(Op::backward_weight, chunk); }

  int microbatches_;
  int next_[2][3] = {};  // by chunk and F, B, W: the next microbatch
};

void drop_weights(Schedule& schedule) {
  for (List& list : schedule.actions)
    std::erase_if(list, [](const Action& action) { return action.op == Op::backward_weight; });
}

}  // namespace

void fill_with_weights(Schedule& schedule, int limit) {
  Progress progress(schedule);
  std::vector<Filler> fillers(to_size(schedule.ranks));
  const auto open = [&] {
    return !progress.finished() ||
           std::any_of(fillers.begin(), fillers.end(), [](const Filler& filler) { return !filler.pending.empty(); });
  };
  while (open()) {  // one unit of time
    std::vector<int> advancing;
    bool moved = false;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      Filler& filler = fillers[to_size(rank)];
      const bool full = !progress.finished(rank) && progress.next(rank).op == Op::forward && filler.in_flight >= limit;
      if (progress.ready(rank) && !full) {
        filler.place(progress.next(rank));
        advancing.push_back(rank);
        moved = true;
      } else if (!filler.pending.empty()) {
        filler.weight();
        moved = true;
      }
    }
    for (const int rank : advancing) progress.advance(rank);
    require(moved, "schedule: the order of F and B cannot be filled with W");
  }
  for (int rank = 0; rank < schedule.ranks; ++rank)
    schedule.actions[to_size(rank)] = std::move(fillers[to_size(rank)].list);
}

Schedule zb_v(int ranks, int microbatches) {
  Schedule phases;
  phases.name = "zb_v";
  phases.ranks = ranks;
  phases.chunks_per_rank = 2;
  phases.microbatches = microbatches;
  phases.places = v_places(ranks);
  for (int rank = 0; rank < ranks; ++rank) phases.actions.push_back(VPhases(ranks, rank, microbatches).list);
  if (microbatches >= 2 * ranks - 1) return phases;
  // A pipeline that never fills: W's that stand in the way of a B are moved behind it.
  Schedule filled = phases;
  drop_weights(filled);
  fill_with_weights(filled, 2 * ranks);
  const DurationOf unit = uniform_durations(1, 1, 1);
  return timeline(filled, unit).makespan <= timeline(phases, unit).makespan ? filled : phases;
}

}  // namespace forge

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/to_size.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// How far the ranks of a schedule have come, and the next action of each: the data dependencies between stages.
//   F(s, m) reads F(s-1, m); B(s, m) reads F(s, m) and B(s+1, m); W(s, m) reads B(s, m);
//   a wait for a receive reads its send's post; the rest is the order of the list.
class Progress {
 public:
  explicit Progress(const Schedule& schedule);

  bool finished(int rank) const { return position_[to_size(rank)] == static_cast<int>(list(rank).size()); }
  bool finished() const;
  int position(int rank) const { return position_[to_size(rank)]; }
  const Action& next(int rank) const { return list(rank)[to_size(position(rank))]; }
  bool ready(int rank) const;  // not finished, and next(rank) has its operands
  void advance(int rank);      // next(rank) is done
  // "rank 1 at action 4, F c0 m1, waits for F of stage 0, microbatch 1": why next(rank) is not ready.
  std::string reason(int rank) const;

 private:
  const std::vector<Action>& list(int rank) const { return schedule_->actions[to_size(rank)]; }
  std::string missing(const Action& action, int stage) const;  // "" when nothing is
  std::string missing(int rank) const;

  const Schedule* schedule_;
  std::vector<int> position_;                                           // by rank
  std::vector<int> stage_;                                              // by rank * chunks + chunk
  std::vector<std::uint8_t> forward_, backward_, sent_up_, sent_down_;  // by stage * M + microbatch
};

// Walks all ranks in an order that respects every dependency, each rank as far as it can go: visit(rank, position,
// action). Returns false where the ranks wait for each other; `progress` then shows how far they came.
template <class Visit>
bool walk_all_ranks(const Schedule& schedule, Progress& progress, Visit&& visit) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < schedule.ranks; ++rank)
      while (!progress.finished(rank) && progress.ready(rank)) {
        visit(rank, progress.position(rank), progress.next(rank));
        progress.advance(rank);
        moved = true;
      }
  }
  return progress.finished();
}

}  // namespace forge

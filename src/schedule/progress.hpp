#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace forge {

// How far the ranks of a schedule have come, and what each can do next: the data dependencies between stages.
//   F(s, m) reads F(s-1, m); B(s, m) reads F(s, m) and B(s+1, m); W(s, m) reads B(s, m); recompute reads F;
//   a wait for a receive reads its send's post; the rest is the order of the list.
class Progress {
 public:
  explicit Progress(const Schedule& schedule);

  bool finished(int rank) const { return position_[at(rank)] == static_cast<int>(list(rank).size()); }
  bool finished() const;
  int position(int rank) const { return position_[at(rank)]; }
  const Action& next(int rank) const { return list(rank)[static_cast<std::size_t>(position(rank))]; }
  bool ready(int rank) const;  // not finished, and what next(rank) reads is there
  void advance(int rank);      // next(rank) is done
  // "rank 1 at action 4, F c0 m1, waits for F of stage 0, microbatch 1": why next(rank) is not ready.
  std::string reason(int rank) const;

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const std::vector<Action>& list(int rank) const { return schedule_->actions[at(rank)]; }
  std::string missing(const Action& action, int stage) const;  // "" when nothing is

  const Schedule* schedule_;
  std::vector<int> position_;                                           // by rank
  std::vector<int> stage_;                                              // by rank * chunks + chunk
  std::vector<std::uint8_t> forward_, backward_, sent_up_, sent_down_;  // by stage * M + microbatch
};

}  // namespace forge

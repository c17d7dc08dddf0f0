#pragma once

#include <chrono>
#include <deque>

namespace forge {

// How long something takes that happens again and again, at worst: the longest time of the last hour, or the last one
// where that is older.
class RecentTimes {
 public:
  using Clock = std::chrono::steady_clock;

  void add(double seconds, Clock::time_point now = Clock::now()) {
    while (!times_.empty() && times_.back().seconds <= seconds) times_.pop_back();
    times_.push_back({now, seconds});
    while (now - times_.front().at > std::chrono::hours(1)) times_.pop_front();
  }
  // 0: it has not happened yet.
  double longest() const { return times_.empty() ? 0 : times_.front().seconds; }

 private:
  struct Time {
    Clock::time_point at;
    double seconds;
  };
  std::deque<Time> times_;  // each shorter than the one before: the others can't become the longest any more
};

}  // namespace forge

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace forge {

// How fast a checkpoint is written behind the training: hashes and copies cost processor time that the steps need where
// they use all cores. The writing thread works 4 % of its time, for at most three quarters of what has passed between
// the last two saves, and no longer than until somebody waits for it.
class WritingPace {
 public:
  void start(bool rests);  // of a save
  void hurry();
  void rest();  // by the writing thread, now and then
  // Seconds since the start, less the rests: what a save takes that somebody waits for.
  double seconds_of_work() const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point started_ = Clock::now(), until_, worked_from_;
  Clock::duration rested_{};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool hurried_ = false;
};

}  // namespace forge

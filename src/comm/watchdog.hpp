#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace forge {

// Seconds that a rank may take. first: for the start, for a restart, for the first step, and for each checkpoint and
// validation; later: of a step, at least: ten times the median step where that is longer.
struct Deadlines {
  double first = 300, later = 60;
};

// A thread of every rank that notices when training doesn't go on: a rank that is stopped or loops makes all others
// wait. Calls `missed` once, in its own thread, with what the rank was doing: "step 12, gradients". MPI offers nothing
// for this: a collective operation that a rank never joins doesn't end.
class Watchdog {
 public:
  Watchdog(Deadlines deadlines, std::function<void(const std::string& doing)> missed);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A step begins: its deadline runs from here.
  void start_step(std::int64_t step);
  // What the step does now, for the report. A literal.
  void enter(const char* phase);
  // Something beside the steps begins, with the first deadline: "checkpoint"; step 0: before the first one.
  void start_other(std::int64_t step, const char* what);
  // A step has taken so long.
  void step_done(double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  void arm(std::int64_t step, const char* phase, double seconds);
  void watch();
  double median() const;

  Deadlines deadlines_;
  std::function<void(const std::string&)> missed_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t step_ = 0;
  const char* phase_ = "start";
  Clock::time_point deadline_;
  std::vector<double> recent_;  // seconds of the last steps, in a ring
  std::size_t next_ = 0;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace forge

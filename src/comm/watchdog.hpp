#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/roll_call.hpp"
#include "core/heartbeat.hpp"

namespace forge {

// The parts of a start, with the seconds of each.
using StartTimes = std::vector<std::pair<std::string, double>>;
inline constexpr const char* first_batch_name = "first batch";

// Seconds that a rank may take. first: for the first step, and for each piece of work beside the steps (the start, a
// checkpoint, a validation, …) or, where that beats, from one beat to the next; 0: for ever, also in the steps.
// later: of a step, at least: ten times the median step of its size where that is longer (core/batch_seconds.hpp).
struct Deadlines {
  double first = 300, later = 60;
};

// A thread of every rank that notices when the job doesn't go on: a rank that is stopped or loops makes all others
// wait, and MPI offers nothing for this: a collective operation that a rank never joins doesn't end. It knows this
// rank's activity ("step 12, gradients"), answers others' roll calls, calls them when this rank's deadline is missed,
// and calls `missed` once, in its own thread, where the job hangs and it is this rank that says so.
class Watchdog {
 public:
  struct Missed {
    std::string doing;             // of this rank
    bool alone;                    // others can't be asked: there are none, or MPI isn't up, or not any more
    RollCall::Outcome ranks = {};  // unless alone
  };
  // Begins with the work `doing`, a literal as all of these names.
  Watchdog(Deadlines deadlines, const char* doing, std::function<void(const Missed&)> missed);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Other deadlines from here on, also for the work under way.
  void set(Deadlines deadlines);
  // Takes part in the roll calls of so many ranks, until leave().
  void join(int rank, int size, std::unique_ptr<Mail> mail);
  void leave();

  // A step of so many sequences begins: its deadline runs from here.
  void start_step(std::int64_t step, std::int64_t sequences = 1);
  // The step's phase from here on, for the report.
  void enter(const char* phase);
  // Something beside the steps begins: "checkpoint"; step 0: before the first one. Its deadline runs from the last
  // beat.
  void start_other(std::int64_t step, const char* what);
  // A step has taken so many seconds.
  void step_done(double seconds);
  Heartbeat& heartbeat() { return heartbeat_; }
  // The seconds of each work begun before the first step, in order, and last the seconds of the first step's batch.
  StartTimes start_times();

 private:
  using Clock = std::chrono::steady_clock;
  void arm(std::int64_t step, const char* phase, double seconds, bool beats);
  void count();  // adds the work that ends now to the start's parts
  void watch();
  RankStatus status(Clock::time_point now);

  Deadlines deadlines_;
  std::function<void(const Missed&)> missed_;
  Heartbeat heartbeat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t step_ = 0;
  std::int64_t sequences_ = 1;  // of the step
  const char* phase_ = nullptr;
  Clock::time_point begun_;  // the phase
  StartTimes start_times_;
  bool starts_ = true;
  double seconds_ = 0;  // that the phase may take, or its next part; 0: for ever
  Clock::time_point since_;
  bool beats_ = true;       // the phase has parts
  std::uint64_t seen_ = 0;  // of the heartbeats
  // Seconds of the last steps, in a ring.
  struct Recent {
    double median() const;
    std::vector<double> seconds;
    std::size_t next = 0;
  };
  std::map<std::int64_t, Recent> recent_;  // by their sequences
  std::unique_ptr<Mail> mail_;
  std::unique_ptr<RollCall> roll_call_;
  bool in_turn_ = false, ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace forge

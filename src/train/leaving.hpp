#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "core/error.hpp"

namespace forge {

// All ranks leave together on SIGINT: nobody starts the job again.
class LeftOnInterrupt : public LeftOnSignal {
 public:
  static constexpr int exit_code = 130;
  using LeftOnSignal::LeftOnSignal;
};

// Whether a job leaves before its end: on a signal, or as its time limit is near. The ranks agree, since a signal may
// have reached some of them only, and their clocks differ; then it stays so.
class Leaving {
 public:
  // `margin`: seconds before the time limit in which nothing begins any more. `ranks` must live longer than this.
  Leaving(Communicator& ranks, double margin) : ranks_(ranks), margin_(margin) {}

  // Whether this rank has reason to leave: a signal; or, on the first one, work of so many seconds more ends too late.
  bool asked(double seconds) const { return signal_here() != 0 || late(seconds); }
  // All ranks. Returns the largest of their `other`.
  std::int64_t agree(double seconds, std::int64_t other = 0);
  bool agreed() const { return signal_ != 0 || late_; }

  // The reason, once they have agreed: "SIGTERM".
  std::string why() const;
  // All ranks: throws LeftOnInterrupt or another LeftOnSignal, "TEXT: SIGTERM".
  [[noreturn]] void leave(const std::string& text) const;

  // Half of the job's time left at the start: no estimate of work that never ran is longer. 0: there is no
  // limit.
  double most_of_estimates() const { return most_; }

 private:
  int signal_here() const;
  bool late(double seconds) const;
  static double seconds_to_limit();

  Communicator& ranks_;
  double margin_, most_ = std::max(0.0, seconds_to_limit() / 2);
  int signal_ = 0;
  bool late_ = false;
};

// The points of a long loop at which the ranks ask whether they leave: behind the first part, and then about every
// second, the same on all ranks. A part of a pipeline waits there for the last stage.
class StopPoints {
 public:
  // All ranks, behind each part of the loop. `seconds`: the time of leaving itself.
  bool stop(Leaving& leaving, double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t left_ = 1, between_ = 1;  // parts to the next point, and between the last two
  Clock::time_point since_ = Clock::now();
};

}  // namespace forge

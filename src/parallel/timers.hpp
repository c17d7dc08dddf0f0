#pragma once

#include <array>
#include <chrono>
#include <string_view>
#include <vector>

#include "core/to_size.hpp"
#include "device/time_mark.hpp"

namespace forge {

// The work or waits of a rank's compute stream: on a GPU by its own clock, which goes on while the host is ahead. On
// CPUs stream and host are one.
enum class Phase { data, forward, backward, reduce, optimizer, validation, output };
inline constexpr int phase_count = 7;
std::string_view name_of(Phase phase);

class PhaseTimers {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PhaseTimers(Stream& compute) : compute_(compute) {}

  // Adds the stream's time until its own end to a phase. Scopes don't overlap.
  class Scope {
   public:
    Scope(PhaseTimers& timers, Phase phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimers& timers_;
    int exceptions_;
  };

  [[nodiscard]] Scope start(Phase phase) { return Scope(*this, phase); }
  // Counts the scopes that have ended, all of which the stream must have passed: behind a wait for it.
  void count_ended();
  // Seconds of the scopes counted so far.
  double seconds(Phase phase) const { return seconds_[to_size(phase)]; }

 private:
  struct Span {
    Phase phase;
    TimeMark start, end;
  };

  Stream& compute_;
  std::array<double, phase_count> seconds_{};
  std::vector<Span> spans_;  // the first `used_` wait to be counted; the others' marks are reused
  std::size_t used_ = 0;
  bool open_ = false;  // the last of them has not ended
};

}  // namespace forge

#pragma once

#include <array>
#include <chrono>
#include <string_view>

#include "core/to_size.hpp"

namespace forge {

// Where a rank's time goes. On the CPU work is done when a call returns; on CUDA the stream is not synchronised, so the
// figures there are those of the host's launches, and the header of the table says so.
enum class Phase { data, forward, backward, reduce, optimizer, validation, output };
inline constexpr int phase_count = 7;
std::string_view name_of(Phase phase);

class PhaseTimers {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the time until its own end to a phase.
  class Scope {
   public:
    Scope(PhaseTimers& timers, Phase phase) : timers_(timers), phase_(phase), start_(Clock::now()) {}
    ~Scope() { timers_.seconds_[to_size(phase_)] += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimers& timers_;
    Phase phase_;
    Clock::time_point start_;
  };

  [[nodiscard]] Scope start(Phase phase) { return Scope(*this, phase); }
  double seconds(Phase phase) const { return seconds_[to_size(phase)]; }

 private:
  std::array<double, phase_count> seconds_{};
};

}  // namespace forge

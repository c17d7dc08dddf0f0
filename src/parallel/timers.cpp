#include "parallel/timers.hpp"

#include <exception>
#include <utility>

#include "core/error.hpp"

namespace forge {

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[phase_count] = {"data",      "forward",    "backward", "reduce",
                                                   "optimizer", "validation", "output"};
  return names[to_size(phase)];
}

PhaseTimers::Scope::Scope(PhaseTimers& timers, Phase phase) : timers_(timers), exceptions_(std::uncaught_exceptions()) {
  require(!timers.open_, "one phase at a time");
  if (timers.used_ == timers.spans_.size()) timers.spans_.emplace_back();
  Span& span = timers.spans_[timers.used_];
  span.phase = phase;
  span.start.record(timers.compute_);
  ++timers.used_;
  timers.open_ = true;
}

// What has failed is told by itself, not by its measurement.
PhaseTimers::Scope::~Scope() {
  if (std::uncaught_exceptions() == exceptions_)
    timers_.spans_[timers_.used_ - 1].end.record(timers_.compute_);
  else
    --timers_.used_;
  timers_.open_ = false;
}

void PhaseTimers::count_ended() {
  const std::size_t ended = used_ - (open_ ? 1 : 0);
  for (std::size_t i = 0; i < ended; ++i) {
    const Span& span = spans_[i];
    seconds_[to_size(span.phase)] += span.end.seconds_since(span.start);
  }
  if (open_ && ended > 0) std::swap(spans_[0], spans_[ended]);
  used_ -= ended;
}

}  // namespace forge

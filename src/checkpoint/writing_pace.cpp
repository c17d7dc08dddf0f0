#include "checkpoint/writing_pace.hpp"

#include <algorithm>

namespace forge {

void WritingPace::start(bool rests) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  // Done before the next save is due, if that comes after as long a time as this one.
  until_ = rests ? now + (now - started_) * 3 / 4 : now;
  started_ = worked_from_ = now;
  rested_ = {};
  hurried_ = false;
}

void WritingPace::hurry() {
  const std::lock_guard lock(mutex_);
  hurried_ = true;
  changed_.notify_all();
}

void WritingPace::rest() {
  constexpr int rest_of_work = 24;  // 4 % of a core's time
  std::unique_lock lock(mutex_);
  const auto now = Clock::now();
  changed_.wait_until(lock, std::min(until_, now + rest_of_work * (now - worked_from_)), [&] { return hurried_; });
  worked_from_ = Clock::now();
  rested_ += worked_from_ - now;
}

double WritingPace::seconds_of_work() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(Clock::now() - started_ - rested_).count();
}

}  // namespace forge

#include "train/watchdog.hpp"

#include <algorithm>

namespace forge {

namespace {

constexpr std::size_t remembered = 63;

}  // namespace

Watchdog::Watchdog(Deadlines deadlines, std::function<void(const std::string&)> missed)
    : deadlines_(deadlines), missed_(std::move(missed)) {
  deadline_ =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadlines.first));
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::arm(std::int64_t step, const char* phase, double seconds) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  phase_ = phase;
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  changed_.notify_all();
}

double Watchdog::median() const {
  const std::lock_guard lock(mutex_);
  if (recent_.empty()) return 0;
  std::vector<double> sorted = recent_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void Watchdog::start_step(std::int64_t step) {
  const double usual = median();
  arm(step, "data", usual == 0 ? deadlines_.first : std::max(deadlines_.later, 10 * usual));
}

void Watchdog::enter(const char* phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
}

void Watchdog::start_other(std::int64_t step, const char* what) {
  arm(step, what, std::max(deadlines_.first, 10 * median()));
}

void Watchdog::step_done(double seconds) {
  const std::lock_guard lock(mutex_);
  if (recent_.size() < remembered)
    recent_.push_back(seconds);
  else
    recent_[next_++ % remembered] = seconds;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (Clock::now() < deadline_) {
      changed_.wait_until(lock, deadline_);
      continue;
    }
    const std::string doing = (step_ > 0 ? "step " + std::to_string(step_) + ", " : "") + phase_;
    lock.unlock();
    missed_(doing);
    return;
  }
}

}  // namespace forge

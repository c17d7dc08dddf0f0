#include "comm/watchdog.hpp"

#include <algorithm>
#include <optional>

#include "core/batch_seconds.hpp"

namespace forge {

namespace {

constexpr std::size_t remembered = 63;
constexpr auto turn = std::chrono::milliseconds(50);

double seconds_of(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

Watchdog::Watchdog(Deadlines deadlines, const char* doing, std::function<void(const Missed&)> missed)
    : deadlines_(deadlines), missed_(std::move(missed)) {
  arm(0, doing, deadlines.first, true);
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

void Watchdog::set(Deadlines deadlines) {
  const std::lock_guard lock(mutex_);
  deadlines_ = deadlines;
  seconds_ = deadlines.first;
}

void Watchdog::join(int rank, int size, std::unique_ptr<Mail> mail) {
  const std::lock_guard lock(mutex_);
  mail_ = std::move(mail);
  roll_call_ = std::make_unique<RollCall>(rank, size, *mail_);
}

void Watchdog::leave() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !in_turn_; });
  roll_call_.reset();
  mail_.reset();
}

void Watchdog::arm(std::int64_t step, const char* phase, double seconds, bool beats) {
  const std::lock_guard lock(mutex_);
  count();
  step_ = step;
  phase_ = phase;
  seconds_ = deadlines_.first == 0 ? 0 : seconds;
  beats_ = beats;
  since_ = Clock::now();
}

void Watchdog::count() {
  const auto now = Clock::now();
  if (starts_ && phase_) {
    const std::string name = step_ > 0 ? first_batch_name : phase_;
    const auto known =
        std::find_if(start_times_.begin(), start_times_.end(), [&](const auto& part) { return part.first == name; });
    (known == start_times_.end() ? start_times_.emplace_back(name, 0) : *known).second += seconds_of(now - begun_);
    starts_ = step_ == 0;
  }
  begun_ = now;
}

StartTimes Watchdog::start_times() {
  const std::lock_guard lock(mutex_);
  count();
  return start_times_;
}

double Watchdog::Recent::median() const {
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void Watchdog::start_step(std::int64_t step, std::int64_t sequences) {
  sequences_ = sequences;
  const double usual = seconds_of_batch(recent_, sequences, [](const Recent& r) { return r.median(); });
  arm(step, "data", usual == 0 ? deadlines_.first : std::max(deadlines_.later, 10 * usual), false);
}

void Watchdog::enter(const char* phase) {
  const std::lock_guard lock(mutex_);
  count();
  phase_ = phase;
}

void Watchdog::start_other(std::int64_t step, const char* what) {
  double longest = 0;
  for (const auto& [sequences, recent] : recent_) longest = std::max(longest, recent.median());
  arm(step, what, std::max(deadlines_.first, 10 * longest), true);
}

void Watchdog::step_done(double seconds) {
  const std::lock_guard lock(mutex_);
  Recent& recent = recent_[sequences_];
  if (recent.seconds.size() < remembered)
    recent.seconds.push_back(seconds);
  else
    recent.seconds[recent.next++ % remembered] = seconds;
}

RankStatus Watchdog::status(Clock::time_point now) {
  if (const std::uint64_t beats = heartbeat_.beats(); beats != seen_) {
    seen_ = beats;
    if (beats_) since_ = now;
  }
  RankStatus status{(step_ > 0 ? "step " + std::to_string(step_) + ", " : "") + phase_};
  if (seconds_ > 0) status.remaining = seconds_ - seconds_of(now - since_);
  return status;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const auto now = Clock::now();
    const RankStatus own = status(now);
    const bool alone = roll_call_ == nullptr;
    std::optional<RollCall::Outcome> outcome;
    in_turn_ = true;
    lock.unlock();
    if (!alone) outcome = roll_call_->turn(seconds_of(now.time_since_epoch()), own);
    const bool missed = outcome || (alone && own.remaining <= 0);
    if (missed) missed_({own.doing, alone, outcome.value_or(RollCall::Outcome{})});
    lock.lock();
    in_turn_ = false;
    ends_ = ends_ || missed;
    changed_.notify_all();
    changed_.wait_for(lock, turn, [this] { return ends_; });
  }
}

}  // namespace forge

#include "train/leaving.hpp"

#include <array>
#include <csignal>
#include <ctime>

#include "train/stop_request.hpp"

namespace forge {

// 0: there is no limit.
double Leaving::seconds_to_limit() {
  const std::int64_t end = job_end_time();
  return end > 0 ? static_cast<double>(end - std::time(nullptr)) : 0;
}

int Leaving::signal_here() const {
  return weight_of_signal(stop_signal());
}

bool Leaving::late(double seconds) const {
  return ranks_.rank() == 0 && job_end_time() > 0 && seconds_to_limit() <= margin_ + seconds;
}

std::int64_t Leaving::agree(double seconds, std::int64_t other) {
  std::array<std::int64_t, 3> votes{signal_here(), late(seconds), other};
  ranks_.max_host(votes);
  signal_ = std::max(signal_, static_cast<int>(votes[0]));
  late_ = late_ || votes[1] != 0;
  return votes[2];
}

std::string Leaving::why() const {
  return signal_ != 0 ? name_of_signal(signal_of_weight(signal_)) : "the job's time limit is near";
}

void Leaving::leave(const std::string& text) const {
  const std::string all = text + ": " + why();
  if (signal_ == weight_of_signal(SIGINT)) throw LeftOnInterrupt(all);
  throw LeftOnSignal(all);
}

bool StopPoints::stop(Leaving& leaving, double seconds) {
  constexpr std::int64_t pause = 1'000'000;  // microseconds
  if (--left_ > 0) return false;
  const auto now = Clock::now();
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(now - since_).count();
  since_ = now;
  const std::int64_t slowest = std::max<std::int64_t>(leaving.agree(seconds, took), 1);
  between_ = std::clamp<std::int64_t>(between_ * pause / slowest, 1, 2 * between_);
  left_ = between_;
  return leaving.agreed();
}

}  // namespace forge

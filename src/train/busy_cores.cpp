#include "train/busy_cores.hpp"
#include "core/bytes.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace forge {

namespace {

constexpr double interval = 1;          // seconds
constexpr double busy_fraction = 0.1;   // of the time
constexpr double idle_fraction = 0.02;  // likewise …
constexpr double idle_seconds = 30;     // … for so long

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string BusyCores::after_step() {
  const double seconds = now();
  if (!starts_ && seconds - since_ < interval) return "";
  const auto waited = seconds_without_core();
  return waited ? at(seconds, *waited) : "";
}

std::string BusyCores::at(double seconds, double waited) {
  const double passed = seconds - since_, without = std::max(0.0, waited - waited_);
  since_ = seconds;
  waited_ = waited;
  if (std::exchange(starts_, false)) {
    idle_since_ = seconds;
    return "";
  }
  const double fraction = without / passed;
  if (fraction > idle_fraction) idle_since_ = seconds;
  if (waits_ && seconds - idle_since_ > idle_seconds) waits_.reset();
  if (fraction <= busy_fraction) return "";
  if (threads_ > 1 && !waits_) waits_ = std::make_unique<ShortWaits>();
  if (std::exchange(told_, true)) return "";
  return formatted(
      "  note      a rank waits for a core %.0f %% of the time: there are other processes, or more ranks than "
      "cores%s\n",
      100 * std::min(1.0, fraction), threads_ > 1 ? "; machine.threads=1 may be faster while it lasts" : "");
}

}  // namespace forge

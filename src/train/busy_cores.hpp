#pragma once

#include <memory>
#include <string>

#include "device/core_use.hpp"

namespace forge {

// Watches whether the cores of a rank have other work, and as long as they have lets its threads sleep while they wait
// for each other.
class BusyCores {
 public:
  explicit BusyCores(int threads) : threads_(threads) {}

  // After a step: a line for the log, the first time that other work is found; else empty.
  std::string after_step();
  // The same with the seconds of a clock, and the seconds of waiting for cores until then.
  std::string at(double seconds, double waited);
  bool sleeps() const { return waits_ != nullptr; }

 private:
  int threads_;
  double since_ = 0, waited_ = 0, idle_since_ = 0;
  bool starts_ = true, told_ = false;
  std::unique_ptr<ShortWaits> waits_;
};

}  // namespace forge

#pragma once

#include <memory>

#include "device/stream.hpp"

namespace forge {

// The moment at which a stream has done its work so far, on the device's clock; on the CPU the steady clock.
class TimeMark {
 public:
  TimeMark();
  TimeMark(TimeMark&&) noexcept = default;
  TimeMark& operator=(TimeMark&&) noexcept = default;

  void record(Stream& stream);
  // Seconds between two marks of one device that streams have passed.
  double seconds_since(const TimeMark& first) const;

 private:
  struct Implementation;
  std::shared_ptr<Implementation> impl_;
};

}  // namespace forge

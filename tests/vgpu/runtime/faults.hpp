#pragma once

#include <string>

namespace vgpu {

// From here on, a touch of device memory by a library of the host, or of memory that is gone by a copy, ends the
// process with a text on it.
void watch_faults();

// While it lives, a fault of this thread is told as one of `what`.
class FaultPlace {
 public:
  explicit FaultPlace(const char* what);
  ~FaultPlace();
  FaultPlace(const FaultPlace&) = delete;
  FaultPlace& operator=(const FaultPlace&) = delete;

 private:
  const char* before_;
};

}  // namespace vgpu

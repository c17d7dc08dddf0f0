#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace vgpu {

// Calls of a device, for FORGE_VGPU_REPORT.
class Counters {
 public:
  void add(const std::string& what, std::int64_t n = 1) {
    const std::lock_guard lock(mutex_);
    counts_[what] += n;
  }
  void add_launch(const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    ++launches_[kernel];
  }
  // {"device": 0, "host waits": 3, …, "launches": {"kernel": 7, …}}
  std::string json(int device) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> counts_, launches_;
};

}  // namespace vgpu

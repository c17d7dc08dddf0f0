#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace forge {

// The longest of the last few times of something that happens again and again.
class RecentTimes {
 public:
  explicit RecentTimes(std::size_t remembered) : remembered_(remembered) {}

  void add(double seconds) {
    if (seconds_.size() < remembered_)
      seconds_.push_back(seconds);
    else
      seconds_[next_++ % remembered_] = seconds;
  }
  // 0: it has not happened yet.
  double longest() const { return seconds_.empty() ? 0 : *std::max_element(seconds_.begin(), seconds_.end()); }

 private:
  std::size_t remembered_, next_ = 0;
  std::vector<double> seconds_;
};

}  // namespace forge

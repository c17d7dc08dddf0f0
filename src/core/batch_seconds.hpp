#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace forge {

// Seconds of a step of n sequences, from the times of earlier steps by their sequences (`seconds`: of the times kept of
// a size; 0: none). A size that was seen has its own time t(n). A step takes a + b n with a, b >= 0, so that another
// size takes at most
//   min over the sizes m seen of t(m) · max(1, n / m)
// 0: nothing was seen.
template <class Times, class Seconds>
double seconds_of_batch(const std::map<std::int64_t, Times>& seen, std::int64_t sequences, const Seconds& seconds) {
  if (const auto own = seen.find(sequences); own != seen.end() && seconds(own->second) > 0) return seconds(own->second);
  double least = 0;
  for (const auto& [size, times] : seen) {
    const double bound = seconds(times) * std::max(1.0, static_cast<double>(sequences) / static_cast<double>(size));
    if (bound > 0 && (least == 0 || bound < least)) least = bound;
  }
  return least;
}

}  // namespace forge

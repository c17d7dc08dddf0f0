#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace forge {

// The median of at least one value; of an even number the mean of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// A median that is one of the values, of an even number the lower one in the middle: of two ranks one can be slow.
inline double lower_median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace forge

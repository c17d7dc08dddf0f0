#pragma once

#include <algorithm>
#include <vector>

namespace forge {

// Of at least one value; of an even number the mean of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace forge

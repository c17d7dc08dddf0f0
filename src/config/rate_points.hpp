#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// A step of a run, and the fraction of the full learning rate there.
struct RatePoint {
  std::int64_t step;
  double ratio;
};

// The points of "100:1, 500:0.5, 1000:0.1": steps ascend, ratios are at least 0. Throws BadInput, which names the key
// optimizer.rate_points, the rule and the legal values.
std::vector<RatePoint> rate_points(const std::string& text);

}  // namespace forge

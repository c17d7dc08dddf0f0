#include "config/rate_points.hpp"

#include <cmath>
#include <string_view>

#include "core/error.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw BadInput("optimizer.rate_points: " + why +
                 "; legal: step:ratio, step:ratio, ... with whole steps that ascend and ratios of at least 0");
}

}  // namespace

std::vector<RatePoint> rate_points(const std::string& text) {
  std::vector<RatePoint> points;
  std::vector<std::string_view> parts = parts_of(text, ',');
  if (trimmed(parts.back()).empty()) parts.pop_back();
  for (const std::string_view part : parts) {
    const std::string_view item = trimmed(part);
    const std::size_t colon = item.find(':');
    RatePoint point{};
    if (colon == std::string_view::npos || !reads_as(trimmed(item.substr(0, colon)), point.step) ||
        !reads_as(trimmed(item.substr(colon + 1)), point.ratio) || !std::isfinite(point.ratio))
      refuse("\"" + std::string(item) + "\" is no point");
    if (point.ratio < 0 || point.step < 0) refuse("\"" + std::string(item) + "\" is negative");
    if (!points.empty() && point.step <= points.back().step)
      refuse("step " + std::to_string(point.step) + " follows step " + std::to_string(points.back().step));
    points.push_back(point);
  }
  return points;
}

}  // namespace forge

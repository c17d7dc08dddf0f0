#include "config/rate_points.hpp"

#include <charconv>
#include <cmath>
#include <string_view>

#include "core/error.hpp"

namespace forge {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <class T>
bool reads(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

[[noreturn]] void refuse(const std::string& why) {
  throw BadInput("optimizer.rate_points: " + why +
                 "; legal: step:ratio, step:ratio, ... with whole steps that ascend and ratios of at least 0");
}

}  // namespace

std::vector<RatePoint> rate_points(const std::string& text) {
  std::vector<RatePoint> points;
  for (std::string_view rest = text; !trimmed(rest).empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = trimmed(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const std::size_t colon = item.find(':');
    RatePoint point{};
    if (colon == std::string_view::npos || !reads(trimmed(item.substr(0, colon)), point.step) ||
        !reads(trimmed(item.substr(colon + 1)), point.ratio) || !std::isfinite(point.ratio))
      refuse("\"" + std::string(item) + "\" is no point");
    if (point.ratio < 0 || point.step < 0) refuse("\"" + std::string(item) + "\" is negative");
    if (!points.empty() && point.step <= points.back().step)
      refuse("step " + std::to_string(point.step) + " follows step " + std::to_string(points.back().step));
    points.push_back(point);
  }
  return points;
}

}  // namespace forge

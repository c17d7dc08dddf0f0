#include "core/bytes.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/counts.hpp"

namespace forge {

namespace {

std::string print(const char* format, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, format, value, unit);
  return text;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return print("%.2f %s", value, units[unit]);
}

namespace {

template <std::size_t N>
std::string with_unit(double count, const char* const (&units)[N]) {
  std::size_t unit = 0;
  while (count >= 1000 && unit + 1 < N) count /= 1000, ++unit;
  return print(unit == 0 && count == std::floor(count) ? "%.0f%s" : "%.2f%s", count, units[unit]);
}

}  // namespace

std::string format_count(double count) {
  return with_unit(count, {"", " k", " M", " B", " T"});
}

std::string format_flops(double flops) {
  return with_unit(flops, {"", " k", " M", " G", " T", " P", " E"});
}

std::string counted(std::int64_t count, const std::string& one, const std::string& several) {
  return std::to_string(count) + " " + (count == 1 ? one : several.empty() ? one + "s" : several);
}

std::string format_seconds(double seconds) {
  if (!(seconds < 1e9)) return "-";
  char text[64];
  const auto whole = static_cast<long>(seconds + 0.5);
  if (seconds < 59.95)  // what "%.1fs" doesn't round to 60
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%ldm%02lds", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  return text;
}

std::string format_exact(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

}  // namespace forge

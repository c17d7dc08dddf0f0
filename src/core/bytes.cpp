#include "core/bytes.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace forge {

std::string formatted(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<std::size_t>(std::max(std::vsnprintf(nullptr, 0, format, arguments), 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string format_bytes(std::uint64_t bytes) {
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return formatted("%.2f %s", value, units[unit]);
}

namespace {

template <std::size_t N>
std::string with_unit(double count, const char* const (&units)[N]) {
  std::size_t unit = 0;
  while (count >= 1000 && unit + 1 < N) count /= 1000, ++unit;
  return formatted(unit == 0 && count == std::floor(count) ? "%.0f%s" : "%.2f%s", count, units[unit]);
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
  const auto whole = static_cast<long>(seconds + 0.5);
  if (seconds < 59.95) return formatted("%.1fs", seconds);  // what "%.1fs" doesn't round to 60
  if (whole < 3600) return formatted("%ldm%02lds", whole / 60, whole % 60);
  return formatted("%ldh%02ldm", whole / 3600, whole / 60 % 60);
}

std::string format_exact(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

}  // namespace forge

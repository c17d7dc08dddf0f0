#include "counters.hpp"

namespace vgpu {

namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string members(const std::map<std::string, std::int64_t>& counts) {
  std::string text;
  for (const auto& [name, n] : counts) text += (text.empty() ? "" : ", ") + quoted(name) + ": " + std::to_string(n);
  return text;
}

}  // namespace

std::string Counters::json(int device) const {
  const std::lock_guard lock(mutex_);
  const std::string counts = members(counts_);
  return "{\"device\": " + std::to_string(device) + (counts.empty() ? "" : ", ") + counts + ", \"launches\": {" +
         members(launches_) + "}}";
}

}  // namespace vgpu

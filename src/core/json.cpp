#include "core/json.hpp"

#include <cmath>

#include "core/bytes.hpp"

namespace forge {

std::string json_of(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += formatted("\\u%04x", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_of(double value) {
  return std::isfinite(value) ? format_exact(value) : "null";
}

JsonLine& JsonLine::add_raw(std::string_view key, const std::string& json) {
  body_ += (body_.empty() ? "" : ", ") + json_of(key) + ": " + json;
  ends_.push_back(body_.size());
  return *this;
}

std::string JsonLine::lines() const {
  std::string all = "{";
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    all += "\n  " + body_.substr(begin, end - begin) + (end < body_.size() ? "," : "\n");
    begin = end + 2;  // behind ", "
  }
  return all + "}\n";
}

}  // namespace forge

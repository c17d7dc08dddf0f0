#include "core/json.hpp"

#include <cmath>
#include <cstdio>

#include "core/bytes.hpp"

namespace forge {

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

JsonLine& JsonLine::add_raw(const std::string& key, const std::string& value) {
  body_ += (body_.empty() ? "" : ", ") + json_text(key) + ": " + value;
  ends_.push_back(body_.size());
  return *this;
}
JsonLine& JsonLine::add_object(const std::string& key, const JsonLine& members) {
  return add_raw(key, members.object());
}
JsonLine& JsonLine::add_list(const std::string& key, const JsonList& elements) {
  return add_raw(key, elements.text());
}

JsonLine& JsonLine::add(const std::string& key, double value) {
  return add_raw(key, std::isfinite(value) ? format_exact(value) : "null");
}
JsonLine& JsonLine::add(const std::string& key, std::int64_t value) {
  return add_raw(key, std::to_string(value));
}
JsonLine& JsonLine::add(const std::string& key, const std::string& value) {
  return add_raw(key, json_text(value));
}
JsonLine& JsonLine::add(const std::string& key, bool value) {
  return add_raw(key, value ? "true" : "false");
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

JsonList& JsonList::add_raw(const std::string& json) {
  body_ += (body_.empty() ? "" : ", ") + json;
  return *this;
}

}  // namespace forge

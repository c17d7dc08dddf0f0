#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace forge {

// JSON of a value. Numbers read back exactly; NaN and Inf, which JSON lacks, become null. A text has quotes and
// escapes.
std::string json_of(std::string_view text);
std::string json_of(double value);
template <std::integral T>
std::string json_of(const T& value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  return std::to_string(value);
}
// An object.
template <class T>
auto json_of(const T& value) -> decltype(value.json()) {
  return value.json();
}
// "[…]"
template <class T>
requires requires(const T& element) {
  json_of(element);
}
std::string json_of(const std::vector<T>& elements) {
  std::string all;
  for (const T& element : elements) all += (all.empty() ? "" : ", ") + json_of(element);
  return "[" + all + "]";
}

// One line of JSON: an object whose members keep their order.
class JsonLine {
 public:
  template <class T>
  JsonLine& add(std::string_view key, const T& value) {
    return add_raw(key, json_of(value));
  }
  // `json` as it is.
  JsonLine& add_raw(std::string_view key, const std::string& json);
  // "{…}"
  std::string json() const { return "{" + body_ + "}"; }
  // "{…}\n"
  std::string text() const { return json() + "\n"; }
  // Like text(), with a member in each line.
  std::string lines() const;

 private:
  std::string body_;
  std::vector<std::size_t> ends_;  // of the members in it
};

}  // namespace forge

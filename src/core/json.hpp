#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// A text with its quotes and escapes.
std::string json_text(const std::string& text);

class JsonList;

// One line of JSON: an object whose members keep their order. Numbers read back exactly; NaN and Inf, which JSON lacks,
// become null.
class JsonLine {
 public:
  JsonLine& add(const std::string& key, double value);
  JsonLine& add(const std::string& key, std::int64_t value);
  JsonLine& add(const std::string& key, const std::string& value);
  JsonLine& add(const std::string& key, bool value);
  // `json` as it is.
  JsonLine& add_raw(const std::string& key, const std::string& json);
  JsonLine& add_object(const std::string& key, const JsonLine& members);
  JsonLine& add_list(const std::string& key, const JsonList& elements);
  // "{…}"
  std::string object() const { return "{" + body_ + "}"; }
  // "{…}\n"
  std::string text() const { return object() + "\n"; }
  // The same with a member in each line.
  std::string lines() const;

 private:
  std::string body_;
  std::vector<std::size_t> ends_;  // of the members in it
};

// A list of JSON.
class JsonList {
 public:
  JsonList& add(const JsonLine& object) { return add_raw(object.object()); }
  JsonList& add(const std::string& text) { return add_raw(json_text(text)); }
  JsonList& add(std::int64_t value) { return add_raw(std::to_string(value)); }
  // "[…]"
  std::string text() const { return "[" + body_ + "]"; }

 private:
  JsonList& add_raw(const std::string& json);

  std::string body_;
};

// Of texts, of integers.
template <class T>
JsonList json_list(const std::vector<T>& elements) {
  JsonList list;
  for (const T& element : elements) list.add(element);
  return list;
}

}  // namespace forge

#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "config/report.hpp"

namespace forge {

// Bounds of a config.json: of its bytes, and of a dimension.
inline constexpr std::size_t most_config_bytes = 16u << 20;
inline constexpr std::int64_t most_size = std::int64_t{1} << 31;

struct JsonLimits {
  int depth = 32;
  std::int64_t values = 1'000'000;  // numbers, texts, lists and maps; bounds the memory of the tree
};

// Parses untrusted JSON into a map. Throws BadInput that names the file, and the byte where it stops being JSON: bad
// syntax, a limit passed, a duplicate key, or a root that is no map.
nlohmann::json parse_json(const std::string& text, const std::string& file, JsonLimits limits);

// A map of an untrusted file, read key by key. A key that is absent or null takes the fallback; one of the wrong type
// or out of range goes into the report and takes it too.
class JsonObject {
 public:
  // `name` stands before every message: "dir/config.json", or "dir/config.json: rope_scaling".
  JsonObject(const nlohmann::json& object, std::string name, Report& report)
      : object_(object), name_(std::move(name)), report_(report) {}

  // nullptr when absent or null.
  const nlohmann::json* find(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }
  // Present, and null.
  bool is_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }

  std::int64_t integer(const char* key, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  // Finite and more than `above`.
  double number(const char* key, double fallback, double above) const;
  // Finite and not negative.
  double amount(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;

  // `why` is "= 3; legal: ..." or a sentence.
  void refuse(const std::string& key, const std::string& why) const {
    report_.add(name_, key + (why.rfind("=", 0) == 0 ? " " : ": ") + why);
  }
  const std::string& name() const { return name_; }
  Report& report() const { return report_; }

 private:
  double finite(const char* key, double fallback, double least, bool above) const;

  const nlohmann::json& object_;
  std::string name_;
  Report& report_;
};

// A JSON value for a message, cut when long.
std::string shown_json(const nlohmann::json& value);

}  // namespace forge

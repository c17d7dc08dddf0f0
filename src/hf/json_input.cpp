#include "hf/json_input.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "config/contents.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"

namespace forge {

using nlohmann::json;

namespace {

// Watches the parser's events: a limit or a duplicate key ends the parse.
class JsonWatch {
 public:
  JsonWatch(const std::string& file, JsonLimits limits) : file_(file), limits_(limits) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= limits_.depth)
          throw BadInput(file_ + ": nested deeper than " + std::to_string(limits_.depth) + " levels");
        names_.resize(to_size(depth) + 1);
        names_.back().clear();
        count();
        break;
      case json::parse_event_t::key:
        check_key(depth, parsed.get_ref<const std::string&>());
        break;
      case json::parse_event_t::value:
        count();
        break;
      default:
        break;
    }
    return true;
  }

 private:
  void count() {
    if (++values_ > limits_.values)
      throw BadInput(file_ + ": holds more than " + std::to_string(limits_.values) + " values");
  }
  // A key's depth is one more than its map's.
  void check_key(int depth, const std::string& key) {
    if (!names_.at(to_size(depth) - 1).insert(key).second)
      throw BadInput(file_ + ": the key " + shown(key) + " appears a second time in its map");
  }

  const std::string& file_;
  JsonLimits limits_;
  std::int64_t values_ = 0;
  std::vector<std::set<std::string>> names_;  // keys seen so far, of every map that is open
};

// NaN and infinities, which Python's json writes, as texts: legal where nobody reads them.
std::string with_named_numbers(const std::string& text) {
  std::string named;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') in_text = !in_text;
    std::string_view word;
    if (!in_text && (c == 'N' || c == 'I' || c == '-'))
      for (const std::string_view name : {"NaN", "Infinity", "-Infinity"})
        if (text.compare(at, name.size(), name) == 0) word = name;
    if (!word.empty()) named.append("\"").append(word).append("\"");
    if (word.empty()) named += c;
    at += word.empty() ? 0 : word.size() - 1;
    if (in_text && c == '\\' && at + 1 < text.size()) named += text[++at];
  }
  return named;
}

// Where a text stops being JSON, and the usual reasons. `at`: the byte, from 1.
std::string no_json_text(const std::string& text, std::size_t at) {
  at = std::min<std::size_t>(at > 0 ? at - 1 : 0, text.size());
  const std::size_t before = at == 0 ? std::string::npos : text.find_last_not_of(" \t\r\n", at - 1);
  const char found = at < text.size() ? text[at] : '\0';
  const bool comma = (found == '}' || found == ']') && before != std::string::npos && text[before] == ',';
  const std::string why = at == text.size()              ? "; it ends too early"
                          : comma                        ? "; a comma stands before " + std::string(1, found)
                          : found == '/' || found == '#' ? "; JSON has no comments"
                          : found == '\''                ? "; JSON has double quotes"
                                                         : "";
  return "not JSON at byte " + std::to_string(at + 1) + ", line " +
         std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + why;
}

}  // namespace

json parse_json(const std::string& text, const std::string& file, JsonLimits limits) {
  json root;
  try {
    root = json::parse(text, JsonWatch(file, limits));
  } catch (const json::parse_error& e) {
    if (text.empty()) throw BadInput(file + ": is empty; legal: JSON");
    for (const std::string& contents : {known_foreign_contents(text), wide_text(text.substr(0, 4096))})
      if (!contents.empty()) throw BadInput(file + ": is " + contents + "; legal: JSON in UTF-8");
    if (const std::string named = with_named_numbers(text); named.size() > text.size())
      return parse_json(named, file, limits);
    throw BadInput(file + ": " + no_json_text(text, e.byte));
  } catch (const json::exception& e) {
    throw BadInput(file + ": not JSON: " + shown(e.what()));
  }
  if (!root.is_object()) throw BadInput(file + ": must be a JSON map ({...})");
  return root;
}

const json* JsonObject::find(const char* key) const {
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::int64_t JsonObject::integer(const char* key, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
  const json* value = find(key);
  if (!value) return fallback;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<std::uint64_t>() <= static_cast<std::uint64_t>(most));
  if (fits && value->get<std::int64_t>() >= least && value->get<std::int64_t>() <= most)
    return value->get<std::int64_t>();
  refuse(key, "= " + shown_json(*value) + "; legal: integer, " + std::to_string(least) + " to " + std::to_string(most));
  return fallback;
}

double JsonObject::finite(const char* key, double fallback, double least, bool above) const {
  const json* value = find(key);
  if (!value) return fallback;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && (above ? number > least : number >= least)) return number;
  }
  refuse(key, "= " + shown_json(*value) + "; legal: number " + (above ? "> " : ">= ") + format_exact(least));
  return fallback;
}

double JsonObject::number(const char* key, double fallback, double above) const {
  return finite(key, fallback, above, true);
}

double JsonObject::amount(const char* key, double fallback) const {
  return finite(key, fallback, 0, false);
}

bool JsonObject::flag(const char* key, bool fallback) const {
  const json* value = find(key);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "= " + shown_json(*value) + "; legal: true | false");
  return fallback;
}

std::string JsonObject::text(const char* key, const std::string& fallback) const {
  const json* value = find(key);
  if (!value) return fallback;
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "= " + shown_json(*value) + "; legal: text");
  return fallback;
}

std::string shown_json(const json& value) {
  if (value.is_object()) return "a map";
  if (value.is_array()) return "a list";
  if (value.is_string()) return shown(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace forge

#include "config/values.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "config/batch_ramp.hpp"
#include "config/mixture_keys.hpp"
#include "config/ranges.hpp"
#include "config/text.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

// A text without its plus sign; "" when another sign follows.
std::string_view without_plus(std::string_view text) {
  if (text.empty() || text[0] != '+') return text;
  text.remove_prefix(1);
  return !text.empty() && text[0] == '-' ? std::string_view() : text;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  text = without_plus(text);
  // from_chars also takes "inf" and "nan".
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
  double value = 0;
  return reads_as(text, value) && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

namespace {

// Numbers such as 010 are octal to some readers and decimal to others.
bool has_leading_zero(std::string_view text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

template <class Integer>
std::optional<Integer> parse_integer(std::string_view text) {
  if (has_leading_zero(text)) return std::nullopt;
  const std::string_view digits = without_plus(text);
  Integer value = 0;
  if (reads_as(digits, value)) return value;
  // Whole numbers up to 2^53 are exact in a double.
  const auto number = parse_number(text);
  constexpr double exact = 9007199254740992.0;
  if (!number || std::floor(*number) != *number || std::abs(*number) > exact) return std::nullopt;
  if (std::is_unsigned_v<Integer> && *number < 0) return std::nullopt;
  return static_cast<Integer>(*number);
}

}  // namespace

std::optional<std::int64_t> parse_whole(std::string_view text) {
  return parse_integer<std::int64_t>(text);
}

std::string kind_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
    case YamlNode::Kind::null:
      return "nothing";
    default:
      return (node.plain ? "" : "the text ") + shown(node.text);
  }
}

namespace {

class ValueReader {
 public:
  ValueReader(const Key& key, const YamlNode& node, Deck& deck) : key_(key), node_(node), deck_(deck) {}

  std::string operator()(const IntegerKey& k) { return number(k.access, parse_integer<std::int64_t>); }
  std::string operator()(const UnsignedKey& k) { return number(k.access, parse_integer<std::uint64_t>); }
  std::string operator()(const NumberKey& k) { return number(k.access, parse_number); }
  std::string operator()(const FlagKey& k) {
    if (!plain_scalar() || (node_.text != "true" && node_.text != "false")) return illegal();
    k.access.set(deck_, node_.text == "true");
    return "";
  }
  std::string operator()(const TextKey& k) { return text(k.access); }
  std::string operator()(const PathKey& k) { return text(k.access); }
  std::string operator()(const PathsKey& k) { return texts(k.access); }
  std::string operator()(const TextsKey& k) { return texts(k.access); }
  std::string texts(const ValueAccess<std::vector<std::string>>& access) {
    if (node_.kind != YamlNode::Kind::list)
      return illegal() + (node_.kind == YamlNode::Kind::scalar ? ", as in [" + node_.text.substr(0, 60) + "]" : "");
    std::vector<std::string> paths;
    for (const auto& item : node_.items) {
      if (item.kind != YamlNode::Kind::scalar) return "holds " + kind_of(item) + ": legal: " + legal_values(key_);
      paths.push_back(item.text);
    }
    access.set(deck_, std::move(paths));
    return "";
  }
  std::string operator()(const IntegersKey& k) { return numbers(k.access, parse_integer<std::int64_t>); }
  std::string operator()(const NumbersKey& k) { return numbers(k.access, parse_number); }
  std::string operator()(const RangesKey& k) {
    std::vector<NumberRange> ranges;
    std::string problem = read_ranges(node_, k.least, k.most, ranges);
    if (problem.empty()) k.access.set(deck_, std::move(ranges));
    return problem;
  }
  template <class T>
  std::string operator()(const ListKey<T>& k) {
    std::vector<T> list;
    std::string problem = read_list(node_, list);
    if (problem.empty()) k.access.set(deck_, std::move(list));
    return problem;
  }
  std::string operator()(const ChoiceKey& k) {
    if (node_.kind != YamlNode::Kind::scalar) return illegal();
    const auto word = std::find(k.words.begin(), k.words.end(), node_.text);
    if (word == k.words.end()) return illegal();
    k.access.set(deck_, static_cast<int>(word - k.words.begin()));
    return "";
  }
  std::string operator()(const SetKey& k) {
    unsigned set = 0;
    if (node_.kind == YamlNode::Kind::scalar) {
      const auto is_text = [&](const auto& entry) { return entry.first == node_.text; };
      const auto word = std::find_if(k.words.begin(), k.words.end(), is_text);
      const bool name = std::find(k.names.begin(), k.names.end(), node_.text) != k.names.end();
      if (word == k.words.end()) return illegal() + (name ? ", as in [" + node_.text + "]" : "");
      set = word->second;
    } else if (node_.kind != YamlNode::Kind::list) {
      return illegal();
    }
    for (const auto& item : node_.items) {
      const auto name = std::find(k.names.begin(), k.names.end(), item.text);
      if (item.kind != YamlNode::Kind::scalar || name == k.names.end())
        return "holds " + kind_of(item) + ": legal: " + legal_values(key_);
      set |= 1U << (name - k.names.begin());
    }
    k.access.set(deck_, set);
    return "";
  }

 private:
  bool plain_scalar() const { return node_.kind == YamlNode::Kind::scalar && node_.plain; }
  std::string illegal() const { return "= " + kind_of(node_) + ": legal: " + legal_values(key_); }

  template <class T, class Parse>
  std::string number(const ValueAccess<T>& access, Parse parse) {
    if (!plain_scalar()) return illegal();
    const auto value = parse(node_.text);
    if (!value) return illegal();
    access.set(deck_, *value);
    return "";
  }
  template <class T, class Parse>
  std::string numbers(const ValueAccess<std::vector<T>>& access, Parse parse) {
    if (node_.kind != YamlNode::Kind::list) return illegal();
    std::vector<T> values;
    for (const auto& item : node_.items) {
      const auto value = item.kind == YamlNode::Kind::scalar && item.plain ? parse(item.text) : std::optional<T>();
      if (!value) return "holds " + kind_of(item) + ": legal: " + legal_values(key_);
      values.push_back(*value);
    }
    access.set(deck_, std::move(values));
    return "";
  }
  std::string text(const ValueAccess<std::string>& access) {
    if (node_.kind != YamlNode::Kind::scalar) return illegal();
    access.set(deck_, node_.text);
    return "";
  }

  const Key& key_;
  const YamlNode& node_;
  Deck& deck_;
};

}  // namespace

std::string read_value(const Key& key, const YamlNode& node, Deck& deck) {
  const std::string problem = std::visit(ValueReader(key, node, deck), key.kind);
  return problem.empty() ? range_problem(key, deck) : problem;
}

}  // namespace forge

#include "config/ranges.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "config/text.hpp"
#include "config/values.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

// "10", "10-12".
std::optional<NumberRange> range_of(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_whole(trimmed(text.substr(0, dash)));
  const auto last = dash == std::string_view::npos ? first : parse_whole(trimmed(text.substr(dash + 1)));
  if (!first || !last) return std::nullopt;
  return NumberRange{*first, *last};
}

// False: it is something else.
bool add_ranges(const YamlNode& node, std::vector<NumberRange>& ranges) {
  if (node.kind != YamlNode::Kind::scalar) return false;
  std::string_view rest = node.text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const auto range = range_of(rest.substr(0, comma));
    if (!range) return false;
    ranges.push_back(*range);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return true;
}

}  // namespace

bool holds(const std::vector<NumberRange>& ranges, std::int64_t number) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const NumberRange& r) { return r.first <= number && number <= r.last; });
}

std::int64_t numbers_in(const std::vector<NumberRange>& ranges, std::int64_t least, std::int64_t most) {
  std::int64_t count = 0;
  for (const NumberRange& r : ranges)
    count += std::max<std::int64_t>(0, std::min(r.last, most) - std::max(r.first, least) + 1);
  return count;
}

std::string legal_ranges(std::int64_t least, std::int64_t most) {
  return "ascending numbers and ranges, as in 10-12, 100; " + std::to_string(least) + " to " + std::to_string(most);
}

std::string read_ranges(const YamlNode& node, std::int64_t least, std::int64_t most, std::vector<NumberRange>& ranges) {
  bool good = true;
  if (node.kind == YamlNode::Kind::list)
    for (const YamlNode& item : node.items) good = good && add_ranges(item, ranges);
  else
    good = add_ranges(node, ranges);
  if (!good) return "= " + kind_of(node) + ": legal: " + legal_ranges(least, most);
  if (least > 0 && ranges == std::vector<NumberRange>{{0, 0}}) ranges.clear();
  return "";
}

std::string ranges_problem(const std::vector<NumberRange>& ranges, std::int64_t least, std::int64_t most) {
  std::int64_t before = least - 1;
  for (const NumberRange& r : ranges) {
    if (r.first <= before || r.last < r.first || r.last > most)
      return "= " + ranges_text(ranges).substr(0, 200) + ": legal: " + legal_ranges(least, most);
    before = r.last;
  }
  return "";
}

std::string ranges_text(const std::vector<NumberRange>& ranges) {
  std::string text;
  for (const NumberRange& r : ranges) {
    text += (text.empty() ? "" : ", ") + std::to_string(r.first);
    if (r.last != r.first) text += "-" + std::to_string(r.last);
  }
  return text;
}

}  // namespace forge

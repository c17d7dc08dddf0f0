#pragma once

#include <string>
#include <vector>

#include "config/report.hpp"

namespace forge {

inline constexpr std::size_t most_yaml_bytes = 1 << 20;
inline constexpr int most_yaml_depth = 32;

// A YAML document as values.
struct YamlNode {
  enum class Kind { null, scalar, list, map, unusable };  // unusable: already reported
  struct Entry;

  Kind kind = Kind::null;
  bool plain = false;        // a scalar without quotes
  std::string text;          // of a scalar
  int line = 0, column = 0;  // from 1; 0 = from an option, not from the file
  int option = -1;           // which --set it comes from
  std::vector<YamlNode> items;
  std::vector<Entry> entries;  // in the file's order
};
struct YamlNode::Entry {
  std::string name;
  int line = 0, column = 0;
  int option = -1;
  YamlNode value;
};

// Where the first byte is that no YAML text in UTF-8 holds; npos: nowhere.
std::size_t find_control_character(const std::string& text);
// Whether the text has UTF-16's byte order mark.
bool starts_as_utf16(const std::string& text);

// Parses untrusted text. More than most_yaml_bytes, nesting deeper than most_yaml_depth, anchors, aliases, tags,
// duplicate keys, keys that aren't names and further documents go into the report (as "name:line:column"); the events
// of the parser are checked one by one, so nothing is ever expanded. Returns false when the text has no usable tree.
bool parse_yaml(const std::string& text, const std::string& name, YamlNode& root, Report& report);

}  // namespace forge

#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/deck.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "config/yaml.hpp"

// Keys whose values are lists of maps: how the members of a map are read. For mixture_keys.cpp.

namespace forge {

// Reads one member of a map into its place; "" or the error.
using MemberReader = std::function<std::string(const YamlNode&)>;
struct Member {
  const char* name;
  MemberReader read;
};

inline std::string expected(const YamlNode& node, const std::string& legal) {
  return "= " + kind_of(node) + ": legal: " + legal;
}

inline MemberReader text_reader(std::string& to) {
  return [&to](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::scalar) return expected(node, "text");
    to = node.text;
    return std::string();
  };
}

inline MemberReader paths_reader(std::vector<std::string>& to) {
  return [&to](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list) return expected(node, "list of paths");
    for (const YamlNode& item : node.items) {
      if (item.kind != YamlNode::Kind::scalar) return expected(item, "path");
      to.push_back(item.text);
    }
    return std::string();
  };
}

inline std::string read_number(const YamlNode& node, double& to) {
  const auto value =
      node.kind == YamlNode::Kind::scalar && node.plain ? parse_number(node.text) : std::optional<double>();
  if (!value || *value < 0) return expected(node, "number, >= 0");
  to = *value;
  return "";
}

inline MemberReader number_reader(std::optional<double>& to) {
  return [&to](const YamlNode& node) {
    double value = 0;
    const std::string problem = read_number(node, value);
    if (problem.empty()) to = value;
    return problem;
  };
}

inline MemberReader integer_reader(std::int64_t& to, std::int64_t least, std::int64_t most) {
  return [&to, least, most](const YamlNode& node) {
    const auto value =
        node.kind == YamlNode::Kind::scalar && node.plain ? parse_whole(node.text) : std::optional<std::int64_t>();
    if (!value || *value < least || *value > most)
      return expected(node, "integer, " + std::to_string(least) + " to " + std::to_string(most));
    to = *value;
    return std::string();
  };
}

inline MemberReader weights_reader(std::vector<std::pair<std::string, double>>& to) {
  return [&to](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map) return expected(node, "map of names and weights");
    for (const YamlNode::Entry& entry : node.entries) {
      double weight = 0;
      if (const std::string problem = read_number(entry.value, weight); !problem.empty())
        return "." + shown(entry.name) + " " + problem;
      to.emplace_back(entry.name, weight);
    }
    return std::string();
  };
}

// A list of maps, each read by the members that `members_of` gives for the element that it is put into.
template <class T, class MembersOf>
std::string read_map_list(const YamlNode& node, std::vector<T>& list, MembersOf members_of) {
  const std::string legal = legal_list(list);
  if (node.kind != YamlNode::Kind::list) return expected(node, legal);
  if (node.items.size() > most_sources) return "has more than " + std::to_string(most_sources) + " entries";
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string where = "[" + std::to_string(i) + "]";
    const YamlNode& item = node.items[i];
    if (item.kind != YamlNode::Kind::map) return where + " " + expected(item, legal);
    T element;
    const std::vector<Member> members = members_of(element);
    for (const YamlNode::Entry& entry : item.entries) {
      const auto member =
          std::find_if(members.begin(), members.end(), [&](const Member& m) { return entry.name == m.name; });
      if (member == members.end()) return where + "." + shown(entry.name) + ": unknown; legal: " + legal;
      if (entry.value.kind == YamlNode::Kind::null) continue;
      if (const std::string problem = member->read(entry.value); !problem.empty())
        return where + "." + entry.name + (problem.starts_with(".") ? "" : " ") + problem;
    }
    list.push_back(std::move(element));
  }
  return "";
}

// "[{…}, {…}]", of the text that `members_text` gives for each element.
template <class T, class MembersText>
std::string map_list_text(const std::vector<T>& list, MembersText members_text) {
  std::string text;
  for (const T& element : list) text += (text.empty() ? "{" : ", {") + members_text(element) + "}";
  return "[" + text + "]";
}

// The text of an element that holds from a step, or from a number of tokens, on.
template <class T>
std::string beginning_text(const T& e) {
  return e.from_step > 0 ? "from_step: " + std::to_string(e.from_step)
                         : "from_tokens: " + std::to_string(e.from_tokens);
}
template <class T>
std::string beginning_problem(const T& e, const std::string& where) {
  if ((e.from_step > 0) != (e.from_tokens > 0)) return "";
  return where + " gives " + (e.from_step > 0 ? "both" : "none") + " of from_step and from_tokens; legal: one of them";
}

}  // namespace forge

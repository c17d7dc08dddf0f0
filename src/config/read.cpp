#include "config/read.hpp"

#include <algorithm>
#include <map>

#include "config/keys.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "config/yaml.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

bool is_section(const std::string& name) {
  const auto& sections = all_sections();
  return std::any_of(sections.begin(), sections.end(), [&](const SectionInfo& s) { return s.name == name; });
}

YamlNode::Entry* find_entry(YamlNode& map, const std::string& name) {
  for (auto& entry : map.entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

// The entry of the same key in a section's map, under its name or its former one.
YamlNode::Entry* find_key_entry(YamlNode& map, const std::string& section, const std::string& name) {
  const Key* key = find_key(section, name);
  if (!key) return find_entry(map, name);
  for (auto& entry : map.entries)
    if (find_key(section, entry.name) == key) return &entry;
  return nullptr;
}

// One reading of a deck: the tree, what was found wrong so far, and the deck that comes of it.
class DeckReader {
 public:
  DeckReader(std::string file, const std::vector<std::string>& options) : file_(std::move(file)), options_(options) {}

  Deck read(const std::string& text, Needs needs) {
    bool usable = parse_yaml(text, file_, root_, report_);
    if (usable && root_.kind != YamlNode::Kind::map && root_.kind != YamlNode::Kind::null) {
      report_.add(place(root_), "must be a map of sections: " + section_names());
      usable = false;
    }
    for (std::size_t i = 0; i < options_.size(); ++i) apply_option(static_cast<int>(i));
    for (const auto& section : root_.entries) read_section(section);
    if (usable) check_required(needs);
    report_.throw_if_any(file_);
    return std::move(deck_);
  }

 private:
  template <class Node>
  std::string place(const Node& at) const {
    if (at.option >= 0) return "--set " + options_[to_size(at.option)].substr(0, 200);
    return file_ + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
  }

  static std::string section_names() {
    std::vector<std::string> names;
    for (const auto& section : all_sections()) names.push_back(section.name);
    return joined(names);
  }

  // Puts the value of "section.key=value" where the file would have it.
  void apply_option(int index) {
    const std::string& option = options_[to_size(index)];
    const auto equals = option.find('='), dot = option.find('.');
    if (equals == std::string::npos || dot >= equals || option.find('.', dot + 1) < equals) {
      report_.add("--set " + option.substr(0, 200), "legal: --set section.key=value");
      return;
    }
    YamlNode value;
    if (!parse_yaml(option.substr(equals + 1), "--set " + option.substr(0, equals), value, report_)) return;
    value.option = index;
    value.line = value.column = 0;
    const std::string section = option.substr(0, dot), name = option.substr(dot + 1, equals - dot - 1);
    if (YamlNode* keys = section_for_option(section, index)) {
      YamlNode::Entry entry{name, 0, 0, index, std::move(value)};
      if (YamlNode::Entry* old = find_key_entry(*keys, section, name))
        *old = std::move(entry);
      else
        keys->entries.push_back(std::move(entry));
    }
  }

  // The map of a section, made when it is missing; nullptr when the file has something else under its name.
  YamlNode* section_for_option(const std::string& section, int index) {
    if (root_.kind == YamlNode::Kind::null) root_.kind = YamlNode::Kind::map;
    if (root_.kind != YamlNode::Kind::map) return nullptr;
    YamlNode::Entry* entry = find_entry(root_, section);
    if (!entry) {
      root_.entries.push_back({section, 0, 0, index, {}});
      entry = &root_.entries.back();
    }
    if (entry->value.kind == YamlNode::Kind::null) entry->value.kind = YamlNode::Kind::map;
    return entry->value.kind == YamlNode::Kind::map ? &entry->value : nullptr;
  }

  void read_section(const YamlNode::Entry& section) {
    if (!is_section(section.name)) {
      const bool one_key = section.value.kind == YamlNode::Kind::scalar || section.value.kind == YamlNode::Kind::list;
      report_.add(place(section), shown(section.name) + ": unknown section; " +
                                      (one_key ? "nearest known key: " + nearest_key("", section.name)
                                               : "nearest known section: " + nearest_section(section.name)));
      return;
    }
    if (section.value.kind == YamlNode::Kind::scalar || section.value.kind == YamlNode::Kind::list)
      report_.add(place(section), section.name + ": must be a map of keys");
    for (const auto& entry : section.value.entries) read_key(section.name, entry);
  }

  void read_key(const std::string& section, const YamlNode::Entry& entry) {
    const Key* key = find_key(section, entry.name);
    if (!key) {
      const std::string name = section + "." + entry.name;
      report_.add(place(entry), (name.size() > 80 ? shown(name) : name) +
                                    ": unknown key; nearest known key: " + nearest_key(section, entry.name));
      return;
    }
    const auto [seen, first] = names_.emplace(key, entry.name);
    if (!first) {
      report_.add(place(entry), section + "." + entry.name + ": " + section + "." + seen->second +
                                    " is given, too, and " + key->former_name + " is the former name of " +
                                    key->qualified() + "; legal: " + key->name + " alone");
      return;
    }
    if (entry.value.kind == YamlNode::Kind::null || entry.value.kind == YamlNode::Kind::unusable) return;
    const std::string problem = read_value(*key, entry.value, deck_);
    if (!problem.empty()) report_.add(place(entry.value), key->qualified() + " " + problem);
    given_[key] = {place(entry.value), problem.empty()};
    if (section == "model") deck_.model.given.push_back(key->name);
  }

  void check_required(Needs needs) {
    for (const auto& key : all_keys()) {
      const bool needed = key.required == Required::training    ? needs == Needs::training
                          : key.required == Required::files     ? needs == Needs::training && deck_.data.sources.empty()
                          : key.required == Required::dimension ? deck_.model.hf.empty()
                                                                : false;
      if (!needed) continue;
      const auto given = given_.find(&key);
      if (given == given_.end()) {
        report_.add(file_, key.qualified() + " is missing: " + key.doc + "; legal: " + legal_values(key) +
                               (key.required == Required::dimension ? "; or give model.hf"
                                : key.required == Required::files   ? "; or give data.sources"
                                                                    : ""));
        continue;
      }
      const std::string problem = given->second.good ? range_problem(key, deck_, true) : "";
      if (!problem.empty()) report_.add(given->second.place, key.qualified() + " " + problem);
    }
  }

  struct Given {
    std::string place;
    bool good;  // else already reported
  };

  std::string file_;
  const std::vector<std::string>& options_;
  YamlNode root_;
  Report report_;
  Deck deck_;
  std::map<const Key*, Given> given_;
  std::map<const Key*, std::string> names_;  // under which the deck has them
};

}  // namespace

Deck read_deck(const std::string& yaml_text, const std::string& file_name, const std::vector<std::string>& set_options,
               Needs needs) {
  return DeckReader(file_name, set_options).read(yaml_text, needs);
}

}  // namespace forge

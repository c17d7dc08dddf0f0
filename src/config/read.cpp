#include "config/read.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include "config/kernel_choice.hpp"
#include "config/keys.hpp"
#include "config/suggest.hpp"
#include "config/text.hpp"
#include "config/values.hpp"
#include "config/yaml.hpp"
#include "config/yaml_hints.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

bool is_text(const Key& key) {
  return std::holds_alternative<TextKey>(key.kind) || std::holds_alternative<PathKey>(key.kind);
}

bool is_null(const std::string& word) {
  return word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL";
}

YamlNode as_typed(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.plain = true;
  node.text = text;
  return node;
}

// Whether YAML would take what is behind a # for a comment.
bool has_comment(const std::string& text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '"' && c == '\\')
      ++i;
    else if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"')
      quote = c;
    else if (c == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t' || text[i - 1] == '\n'))
      return true;
  }
  return false;
}

// The value of an option "section.key=value" as a deck's value. Texts and paths are taken as typed, whatever they hold;
// in quotes they are YAML. Of other keys, null where there is none of the name, lists, maps and texts in quotes are
// YAML, and may hold no comment, which would cut them; the rest is one word as typed. null and ~ are null, nothing is
// where it is no text. False where it isn't YAML, or empty, which is reported under `name`.
bool read_option(const std::string& typed, const std::string& name, const Key* key, YamlNode& value, Report& report) {
  const std::string word(trimmed(typed));
  if (word.empty() && key && !is_text(*key)) {  // a shell's variable that isn't set
    report.add(name, "is empty; legal: " + legal_values(*key) + "; null: the default");
    return false;
  }
  if (is_null(word)) return true;
  const char first = word.front();
  const bool quoted = first == '\'' || first == '"';
  if (key && is_text(*key)) {
    Report ignored;
    value = YamlNode();
    if (quoted && !has_comment(word) && parse_yaml(word, name, value, ignored) && ignored.empty() &&
        value.kind == YamlNode::Kind::scalar && !value.plain)
      return true;
    value = as_typed(typed);
    return true;
  }
  if (!quoted && first != '[' && first != '{') {
    value = as_typed(word);
    return true;
  }
  if (has_comment(word)) {
    report.add(name, "a # behind a space begins a comment in YAML: " + shown(word) +
                         "; legal: texts with # in quotes, as in ['a #1']");
    return false;
  }
  return parse_yaml(word, name, value, report);
}

// A key of earlier versions.
struct FormerKey {
  const char *section, *name;
  const char* key;  // its name today, "section.key"; "": it has none
  // Of a key that is gone: the values, parted by spaces, that changed nothing; an empty one never did. "*": no value
  // changed what is computed, at most how fast, so that a restart may have any.
  const char* meant_nothing;
  const char* instead;  // of a key that is gone: what there is now
};

constexpr std::array former_keys = {
    FormerKey{"model", "capacity_scope", "", "sequence", "a capacity is one of each sequence's tokens"},
    FormerKey{"schedule", "chunks_per_stage", "schedule.virtual_stages", "", ""},
    FormerKey{
        "train", "fp8_carrier", "", "bf16",
        "numbers that fp8 doesn't round are bf16; for tests FORGE_FP8_CARRIER=fp64 in the environment makes them fp64"},
    FormerKey{"machine", "product_algorithms", "", "*",
              "products on a GPU take the algorithm that cuBLASLt proposes first"},
    FormerKey{"machine", "dispatch_counts", "", "*", "the host reads how many rows go to experts of other ranks"},
    FormerKey{
        "machine", "attention", "", "*",
        "a run takes the fastest kernels that its GPU has for the deck; FORGE_ATTENTION chooses for measurements"},
    FormerKey{"machine", "grouped", "", "*",
              "a run takes the fastest kernels that its GPU has for the deck; FORGE_GROUPED chooses for measurements"},
    FormerKey{"machine", "fp8_products", "", "*",
              "products in fp8 are cuBLASLt's of 8-bit codes where the GPU and train.fp8_recipe allow it, else bf16's"},
};

// nullptr where no earlier version had such a key.
const FormerKey* former_key(const std::string& section, const std::string& name) {
  const auto found = std::find_if(former_keys.begin(), former_keys.end(),
                                  [&](const FormerKey& k) { return section == k.section && name == k.name; });
  return found == former_keys.end() ? nullptr : &*found;
}

YamlNode::Entry* find_entry(YamlNode& map, const std::string& name) {
  for (auto& entry : map.entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

// What a deck of an earlier version has where it isn't read; "": it changed nothing.
std::string gone_problem(const FormerKey& former, const YamlNode& value) {
  const char* const values = former.meant_nothing;
  if (values == std::string_view("*") || value.kind == YamlNode::Kind::null ||
      (value.kind == YamlNode::Kind::scalar && (value.text.empty() || has_word(values, value.text))))
    return "";
  return std::string("is gone, and this value meant something: ") + former.instead;
}

// One reading of a deck: the tree, what was found wrong so far, and the deck that comes of it.
class DeckReader {
 public:
  DeckReader(std::string file, const std::vector<std::string>& options, DeckWriter writer)
      : file_(std::move(file)), options_(options), writer_(writer) {}

  Deck read(const std::string& text, Needs needs) {
    text_ = &text;
    bool usable = parse_yaml(text, file_, root_, report_);
    if (usable && root_.kind != YamlNode::Kind::map && root_.kind != YamlNode::Kind::null) {
      report_.add(place(root_), "must be a map of sections: " + section_names() + hint_of(root_));
      usable = false;
    }
    if (options_.size() > most_settings)
      throw BadInput("--set: " + std::to_string(options_.size()) + " of them; legal: at most " +
                     std::to_string(most_settings) + ", more belong into the deck");
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

  // What a person mistook where the text is YAML, but of another shape.
  template <class Node>
  std::string hint_of(const Node& at) const {
    if (at.option >= 0) return "";
    const YamlHint hint = yaml_hint(*text_, at.line + 1);
    if (hint.text.empty()) return "";
    return (hint.line > 0 ? "; line " + std::to_string(hint.line) + ": " : "; ") + hint.text;
  }

  // Puts the value of "section.key=value" where the file would have it.
  void apply_option(int index) {
    const std::string& option = options_[to_size(index)];
    const auto equals = option.find('='), dot = option.find('.');
    if (equals == std::string::npos || dot >= equals || option.find('.', dot + 1) < equals) {
      const std::string key = is_section(option.substr(0, equals)) ? "" : key_named(option.substr(0, equals));
      report_.add("--set " + option.substr(0, 200),
                  "legal: --set " + (key.empty() ? "section.key" : key) +
                      (equals == std::string::npos || key.empty() ? "=value" : option.substr(equals, 200)));
      return;
    }
    const std::string section = option.substr(0, dot), name = option.substr(dot + 1, equals - dot - 1);
    YamlNode value;
    if (!read_option(option.substr(equals + 1), "--set " + option.substr(0, equals), find_key(section, name), value,
                     report_))
      return;
    value.option = index;
    value.line = value.column = 0;
    if (YamlNode* keys = section_for_option(section, index)) {
      YamlNode::Entry entry{name, 0, 0, index, std::move(value)};
      if (YamlNode::Entry* old = find_entry(*keys, name))
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
      report_.add(place(section), shown(section.name) + ": unknown section" + instead_of_section(section));
      return;
    }
    if (section.value.kind == YamlNode::Kind::unusable) broken_.insert(section.name);
    if (section.value.kind == YamlNode::Kind::scalar || section.value.kind == YamlNode::Kind::list) {
      report_.add(place(section), section.name + ": must be a map of keys" + hint_of(section.value));
      broken_.insert(section.name);
    }
    for (const auto& entry : section.value.entries) read_key(section.name, entry);
  }

  // Beyond what a report shows nobody looks for what may be meant.
  bool looks() { return ++looked_for_ <= 100; }

  std::string instead_of_section(const YamlNode::Entry& section) {
    if (!looks()) return "";
    const bool one_key = section.value.kind == YamlNode::Kind::scalar || section.value.kind == YamlNode::Kind::list;
    if (one_key)
      if (const Suggestion key = suggest_key("", section.name); !key.text.empty()) return instead(key);
    const std::string near = suggest_section(section.name);
    return "; " + (near.empty() ? "legal: " + section_names() : near);
  }

  std::string instead_of_key(const std::string& section, const std::string& name) {
    const Suggestion near = suggest_key(section, name);
    return near.text.empty() ? "; " + keys_of_section(section) : instead(near);
  }

  std::string instead(const Suggestion& key) {
    if (!key.key.empty()) misnamed_.insert(key.key);
    return "; " + key.text;
  }

  void read_key(const std::string& section, const YamlNode::Entry& entry) {
    const Key* key = find_key(section, entry.name);
    const FormerKey* former = key ? nullptr : former_key(section, entry.name);
    if (former) key = read_former(*former, entry);
    if (former && !key) return;
    if (!key) {
      const std::string name = section + "." + entry.name;
      report_.add(place(entry), (name.size() > 80 ? shown(name) : name) + ": unknown key" +
                                    (looks() ? instead_of_key(section, entry.name) : ""));
      return;
    }
    if (entry.value.kind == YamlNode::Kind::unusable) given_[key] = {place(entry.value), false};
    if (entry.value.kind == YamlNode::Kind::null || entry.value.kind == YamlNode::Kind::unusable) return;
    const std::string problem = read_value(*key, entry.value, deck_);
    if (!problem.empty()) report_.add(place(entry.value), key->qualified() + " " + problem);
    given_[key] = {place(entry.value), problem.empty()};
    if (section == "model") deck_.model.given.push_back(key->name);
  }

  // The key that is meant, of a deck that forge wrote; else nullptr, and the report has it where that matters.
  const Key* read_former(const FormerKey& former, const YamlNode::Entry& entry) {
    const std::string name = std::string(former.section) + "." + former.name, today = former.key;
    const bool own = writer_ == DeckWriter::forge && entry.option < 0;
    if (!today.empty()) {
      const auto dot = today.find('.');
      if (own) return find_key(today.substr(0, dot), today.substr(dot + 1));
      report_.add(place(entry), name + ": is " + today + " today");
      misnamed_.insert(today);
    } else if (const std::string problem =
                   own ? gone_problem(former, entry.value) : std::string("is gone: ") + former.instead;
               !problem.empty()) {
      report_.add(place(entry), name + ": " + problem);
    }
    return nullptr;
  }

  bool is_given(const char* section, const char* name) const {
    return given_.count(find_key(section, name)) > 0 || broken_.count(section) > 0;
  }

  // What was meant for a key and is reported already isn't missing.
  bool is_missed(const Key& key, Needs needs) const {
    if (broken_.count(key.section) > 0 || misnamed_.count(key.qualified()) > 0) return false;
    switch (key.required) {
      case Required::training:
        return needs == Needs::training;
      case Required::files:
        return needs == Needs::training && !is_given("data", "sources");
      case Required::dimension:
        return !is_given("model", "hf") || (given_.at(find_key("model", "hf")).good && deck_.model.hf.empty());
      case Required::never:
        break;
    }
    return false;
  }

  void check_required(Needs needs) {
    for (const auto& key : all_keys()) {
      if (!is_missed(key, needs)) continue;
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

  static constexpr std::size_t most_settings = 1000;

  std::string file_;
  const std::string* text_ = nullptr;
  const std::vector<std::string>& options_;
  DeckWriter writer_;
  YamlNode root_;
  Report report_;
  Deck deck_;
  std::map<const Key*, Given> given_;
  std::set<std::string> broken_;  // sections that are no maps
  int looked_for_ = 0;
  std::set<std::string> misnamed_;  // keys that stand under another name
};

}  // namespace

Deck read_deck(const std::string& yaml_text, const std::string& file_name, const std::vector<std::string>& set_options,
               Needs needs, DeckWriter writer) {
  Deck deck = DeckReader(file_name, set_options, writer).read(yaml_text, needs);
  deck.train.fp8_carrier = asked_fp8_carrier();
  return deck;
}

}  // namespace forge

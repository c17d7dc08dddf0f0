#include <algorithm>
#include <set>
#include <string_view>

#include "config/text.hpp"
#include "config/yaml.hpp"
#include "config/yaml_hints.hpp"

// The part of YAML that decks and machines are written in, for the explorer, which has no yaml-cpp: maps and lists by
// indentation, lists and maps in brackets (JSON is one), words and texts in quotes on one line, comments. The rest
// (anchors, tags, texts over several lines, further documents) is refused. tests/app/explorer.py compares its trees
// with yaml-cpp's.

namespace forge {

namespace {

struct Refused {};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

class PlainYaml {
 public:
  PlainYaml(const std::string& text, const std::string& name, Report& report)
      : text_(text), name_(name), report_(report) {}

  YamlNode read() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    skip_lines();
    if (starts_with("---") && is_end(at_ + 3)) {
      at_ += 3;
      skip_lines();
    }
    YamlNode root = at_ == text_.size() ? node(YamlNode::Kind::null) : block(-1, 0);
    skip_lines();
    if (at_ < text_.size()) refuse("not YAML: text behind the end of the value");
    return root;
  }

 private:
  bool starts_with(std::string_view word) const { return std::string_view(text_).substr(at_).starts_with(word); }
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  // Behind a word: a blank, the end of the line or of the text.
  bool is_end(std::size_t at) const { return at >= text_.size() || is_blank(text_[at]) || text_[at] == '\n'; }
  std::size_t line_begin() const { return at_ == 0 ? 0 : text_.rfind('\n', at_ - 1) + 1; }
  int column() const { return static_cast<int>(at_ - line_begin()); }

  YamlNode node(YamlNode::Kind kind) const {
    YamlNode result;
    result.kind = kind;
    result.line =
        static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n')) + 1;
    result.column = column() + 1;
    return result;
  }

  [[noreturn]] void refuse(const std::string& why) {
    const YamlNode here = node(YamlNode::Kind::null);
    report_.add(name_ + ":" + std::to_string(here.line) + ":" + std::to_string(here.column), why);
    throw Refused{};
  }

  bool is_comment() const { return now() == '#' && (at_ == 0 || is_blank(text_[at_ - 1]) || text_[at_ - 1] == '\n'); }
  void skip_blanks() {
    while (is_blank(now())) ++at_;
  }
  // To the next text, over ends of lines and comments.
  void skip_lines() {
    while (at_ < text_.size()) {
      skip_blanks();
      if (is_comment()) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (now() == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }
  // Whether nothing else stands on this line.
  bool line_ends() {
    skip_blanks();
    return at_ == text_.size() || now() == '\n' || is_comment();
  }

  // A value that begins here, deeper than `outer`.
  YamlNode block(int outer, int depth) {
    if (depth >= most_yaml_depth) refuse("nested deeper than " + std::to_string(most_yaml_depth) + " levels");
    const int indent = column();
    if (indent <= outer) return node(YamlNode::Kind::null);
    if (now() == '-' && is_end(at_ + 1)) return block_list(indent, depth);
    if (now() != '[' && now() != '{' && key_length() > 0) return block_map(indent, depth);
    YamlNode value = flow(depth, false);
    if (!line_ends()) refuse("not YAML: text behind the end of the value");
    return value;
  }

  YamlNode block_list(int indent, int depth) {
    YamlNode list = node(YamlNode::Kind::list);
    while (at_ < text_.size() && column() == indent && now() == '-' && is_end(at_ + 1)) {
      ++at_;
      if (line_ends()) skip_lines();
      list.items.push_back(at_ == text_.size() ? node(YamlNode::Kind::null) : block(indent, depth + 1));
      next_line(indent);
    }
    return list;
  }

  // Bytes of "name:" that stand here; 0: no key does.
  std::size_t key_length() const {
    std::size_t i = at_;
    if (now() == '"' || now() == '\'') {
      i = text_.find(now(), at_ + 1);
      if (i == std::string::npos) return 0;
      ++i;
    } else {
      while (i < text_.size() && text_[i] != '\n' && !(text_[i] == ':' && is_end(i + 1)) &&
             !(text_[i] == '#' && is_blank(text_[i - 1])))
        ++i;
    }
    while (i < text_.size() && is_blank(text_[i])) ++i;
    return i < text_.size() && text_[i] == ':' && is_end(i + 1) ? i + 1 - at_ : 0;
  }

  YamlNode block_map(int indent, int depth) {
    YamlNode map = node(YamlNode::Kind::map);
    std::set<std::string> names;
    while (at_ < text_.size() && column() == indent && key_length() > 0) {
      YamlNode::Entry entry = key_entry(names, at_ + key_length());
      if (line_ends()) {
        skip_lines();
        const bool list = at_ < text_.size() && column() == indent && now() == '-' && is_end(at_ + 1);
        entry.value = at_ == text_.size() ? node(YamlNode::Kind::null) : block(list ? indent - 1 : indent, depth + 1);
      } else {
        entry.value = flow(depth + 1, false);
        if (!line_ends()) refuse("not YAML: text behind the end of the value");
      }
      map.entries.push_back(std::move(entry));
      next_line(indent);
    }
    return map;
  }

  // Behind a value: to the next text, which mustn't be deeper than its neighbours.
  void next_line(int indent) {
    skip_lines();
    if (at_ < text_.size() && column() > indent) refuse("not YAML: the line is indented, and nothing above it is open");
  }

  YamlNode::Entry key_entry(std::set<std::string>& names, std::size_t behind) {
    const YamlNode place = node(YamlNode::Kind::scalar);
    YamlNode key = now() == '"' || now() == '\'' ? quoted() : place;
    if (key.text.empty()) key.text = std::string(trimmed_right(std::string_view(text_).substr(at_, behind - 1 - at_)));
    at_ = behind;
    if (key.text.empty()) refuse("a key that is not a name; legal: name: value");
    if (!names.insert(key.text).second) refuse(shown(key.text) + ": the key appears a second time");
    return {key.text, place.line, place.column, -1, {}};
  }

  static std::string_view trimmed_right(std::string_view word) {
    while (!word.empty() && is_blank(word.back())) word.remove_suffix(1);
    return word;
  }

  // A value on this line, or in brackets; `inside`: between brackets.
  YamlNode flow(int depth, bool inside) {
    if (depth >= most_yaml_depth) refuse("nested deeper than " + std::to_string(most_yaml_depth) + " levels");
    const char c = now();
    if (c == '[') return flow_list(depth);
    if (c == '{') return flow_map(depth);
    if (c == '"' || c == '\'') return quoted();
    if (c == '&') refuse("an anchor (&name); anchors are not allowed");
    if (c == '*') refuse("an alias (*name); aliases are not allowed, write the value out");
    if (c == '!') refuse("a tag (!type); tags are not allowed");
    if (c == '|' || c == '>' || c == '%' || c == '@' || c == '`')
      refuse(std::string("not YAML of the explorer: a value that begins with ") + c);
    return word(inside);
  }

  YamlNode word(bool inside) {
    YamlNode value = node(YamlNode::Kind::scalar);
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '\n') {
      const char c = text_[at_];
      if (c == '#' && at_ > begin && is_blank(text_[at_ - 1])) break;
      if (c == ':' && (is_end(at_ + 1) || (inside && text_.find_first_of(",]}", at_ + 1) == at_ + 1))) break;
      if (inside && std::string_view(",[]{}").find(c) != std::string_view::npos) break;
      ++at_;
    }
    value.text = std::string(trimmed_right(std::string_view(text_).substr(begin, at_ - begin)));
    value.plain = true;
    if (value.text.empty() || value.text == "~" || value.text == "null" || value.text == "Null" || value.text == "NULL")
      value.kind = YamlNode::Kind::null;
    return value;
  }

  YamlNode quoted() {
    YamlNode value = node(YamlNode::Kind::scalar);
    const char quote = now();
    for (++at_; now() != quote || (quote == '\'' && at_ + 1 < text_.size() && text_[at_ + 1] == quote); ++at_) {
      if (at_ >= text_.size() || now() == '\n')
        refuse("not YAML of the explorer: a quote that doesn't end on its line");
      if (quote == '\'' && now() == quote) ++at_;
      value.text += quote == '"' && now() == '\\' ? escaped() : std::string(1, now());
    }
    ++at_;
    return value;
  }

  // Behind a backslash.
  std::string escaped() {
    constexpr std::string_view from = "nrt0\"\\/", to("\n\r\t\0\"\\/", 7);
    ++at_;
    const std::size_t known = from.find(now());
    if (at_ >= text_.size() || known == std::string_view::npos)
      refuse("not YAML of the explorer: \\ and another letter than n, r, t, 0");
    return std::string(1, to[known]);
  }

  YamlNode flow_list(int depth) {
    YamlNode list = node(YamlNode::Kind::list);
    ++at_;
    for (skip_lines(); now() != ']'; skip_lines()) {
      list.items.push_back(flow(depth + 1, true));
      end_of_item(']');
    }
    ++at_;
    return list;
  }

  YamlNode flow_map(int depth) {
    YamlNode map = node(YamlNode::Kind::map);
    std::set<std::string> names;
    ++at_;
    for (skip_lines(); now() != '}'; skip_lines()) {
      const std::size_t behind = flow_key_end();
      YamlNode::Entry entry = key_entry(names, behind);
      skip_lines();
      entry.value = now() == ',' || now() == '}' ? node(YamlNode::Kind::null) : flow(depth + 1, true);
      map.entries.push_back(std::move(entry));
      end_of_item('}');
    }
    ++at_;
    return map;
  }

  // Behind the colon of a key in brackets. In quotes it may have a value right behind it.
  std::size_t flow_key_end() {
    const std::size_t begin = at_;
    if (now() == '"' || now() == '\'')
      quoted();
    else
      word(true);
    skip_blanks();
    const std::size_t colon = at_;
    if (now() != ':') refuse("a key that is not a name; legal: name: value");
    at_ = begin;
    return colon + 1;
  }

  void end_of_item(char close) {
    skip_lines();
    if (now() == ',')
      ++at_;
    else if (now() != close)
      refuse(std::string("not YAML: no ") + close + " ends the list or map");
  }

  const std::string& text_;
  const std::string& name_;
  Report& report_;
  std::size_t at_ = 0;
};

}  // namespace

bool parse_yaml(const std::string& text, const std::string& name, YamlNode& root, Report& report) {
  if (!is_yaml_text(text, name, report)) return false;
  try {
    root = PlainYaml(text, name, report).read();
  } catch (const Refused&) {
    return false;
  }
  return true;
}

}  // namespace forge

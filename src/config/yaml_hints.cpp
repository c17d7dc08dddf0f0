#include "config/yaml_hints.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "config/text.hpp"
#include "config/yaml.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

using Text = std::string_view;

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

// Without what stands behind a # that begins a comment.
Text without_comment(Text line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote)
      quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"')
      quote = c;
    else if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t'))
      return line.substr(0, i);
  }
  return line;
}

std::size_t name_length(Text text) {
  std::size_t n = 0;
  while (n < text.size() && is_name_letter(text[n])) ++n;
  return n;
}

// "layers = 2"
bool is_assignment(Text text) {
  const std::size_t n = name_length(text);
  const Text rest = trimmed(text.substr(n));
  return n > 0 && rest.starts_with('=') && !rest.starts_with("==");
}

// "[model]", "[[sources]]"
bool is_table_header(Text text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  while (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return !text.empty() && name_length(text) == text.size();
}

// Lines one by one, with what a person knows of them from those above.
class Lines {
 public:
  Lines(const std::string& text, int last) : last_(last), lines_(parts_of(text, '\n')) {}

  YamlHint hint() {
    if (std::string format = other_format(); !format.empty()) return {0, std::move(format)};
    const std::size_t count = std::min<std::size_t>(lines_.size(), to_size(std::max(last_, 1)));
    for (at_ = 0; at_ < count; ++at_)
      if (std::string text = hint_of(lines_[at_]); !text.empty()) return {static_cast<int>(at_) + 1, std::move(text)};
    if (depth_ > 0) return {static_cast<int>(opened_) + 1, "a { or [ that isn't closed, " + shown(lines_[opened_])};
    return {};
  }

 private:
  std::string here(const std::string& what) const { return what + ", " + shown(trimmed_right(lines_[at_])); }
  static Text trimmed_right(Text line) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    return line;
  }

  // By the first line that says something.
  std::string other_format() const {
    bool braces = false;
    for (const Text line : lines_) {
      const Text text = trimmed(line);
      if (text.starts_with("//") || text.starts_with("/*"))
        return "it looks like JSON with comments (JSON5); legal: YAML, or JSON without comments";
      if (text.empty() || text[0] == '#' || text[0] == ';') continue;
      const Text code = trimmed(without_comment(text));
      if (!braces && (is_table_header(code) || is_assignment(code)))
        return "it looks like TOML or an ini file, " + shown(text) +
               "; legal: YAML, where a section is 'model:' and a key '  layers: 2' below it";
      if (!text.starts_with('{')) break;
      braces = true;
    }
    return "";
  }

  std::string hint_of(Text line) {
    const std::size_t indent = std::min(line.find_first_not_of(" \t\r"), line.size());
    if (indent == line.size()) return "";
    if (block_ >= 0) {  // a text of several lines
      if (static_cast<std::ptrdiff_t>(indent) > block_) return "";
      block_ = -1;
    }
    if (depth_ == 0 && line.substr(0, indent).find('\t') != Text::npos)
      return here("a tab indents the line") + "; legal: spaces";
    const Text code = trimmed(without_comment(line));
    if (code.empty() || code == "---" || code == "...") return "";
    if (depth_ > 0) return follow(code), "";
    const std::string wrong = code.starts_with("- ") || code == "-" ? "" : hint_of_key(code, indent);
    if (wrong.empty()) follow(code);
    return wrong;
  }

  std::string hint_of_key(Text code, std::size_t indent) {
    const std::size_t n = name_length(code);
    if (n == 0) return "";
    const Text rest = code.substr(n);
    const bool key = rest.starts_with(':') && (rest.size() == 1 || rest[1] == ' ' || rest[1] == '\t');
    if (is_assignment(code))
      return here("= stands where YAML has a colon") + "; legal: '" + std::string(code.substr(0, n)) + ": VALUE'";
    if (!key && rest.starts_with(':')) return here("no space behind the colon") + "; legal: 'KEY: VALUE'";
    if (!key && (rest.empty() || rest[0] == ' ')) return here("no colon behind the key") + "; legal: 'KEY: VALUE'";
    if (!key) return "";
    while (!indents_.empty() && indents_.back() > indent) indents_.pop_back();
    const bool known = !indents_.empty() && indents_.back() == indent;
    if (!known && !indents_.empty() && !opens_)
      return here("the line's indentation of " + std::to_string(indent) + " is that of no key above") +
             "; legal: keys of a section stand below one another";
    if (!known) indents_.push_back(indent);
    const Text value = trimmed(rest.substr(1));
    opens_ = value.empty();
    if (value.starts_with('|') || value.starts_with('>')) block_ = static_cast<std::ptrdiff_t>(indent);
    return "";
  }

  // Brackets outside quotes.
  void follow(Text code) {
    char quote = 0;
    for (const char c : code) {
      if (quote) {
        quote = c == quote ? 0 : quote;
        continue;
      }
      if ((c == '\'' || c == '"') && depth_ > 0) quote = c;
      if (c == '{' || c == '[') {
        if (depth_ == 0) opened_ = at_;
        ++depth_;
      }
      if (c == '}' || c == ']') depth_ = std::max(depth_ - 1, 0);
    }
  }

  int last_;
  std::vector<Text> lines_;
  std::size_t at_ = 0, opened_ = 0;
  int depth_ = 0;              // of brackets
  std::ptrdiff_t block_ = -1;  // the indentation of a key whose value is a text of several lines
  bool opens_ = true;          // the last key has no value: keys may stand below it
  std::vector<std::size_t> indents_;
};

}  // namespace

YamlHint yaml_hint(const std::string& text, int last) {
  return Lines(text, last).hint();
}

bool is_yaml_text(const std::string& text, const std::string& name, Report& report) {
  if (text.size() > most_yaml_bytes) {
    report.add(name,
               "has " + std::to_string(text.size()) + " bytes; legal: at most " + std::to_string(most_yaml_bytes));
    return false;
  }
  if (find_control_character(text) != std::string::npos || starts_as_utf16(text)) {
    report.add(name, "holds control characters; legal: UTF-8 text");
    return false;
  }
  return true;
}

std::string shown_line(const std::string& text, int line) {
  const std::vector<Text> lines = parts_of(text, '\n');
  const auto at = to_size(std::max(line, 1) - 1);
  return at < lines.size() ? shown(lines[at].substr(0, lines[at].find('\r'))) : "''";
}

std::size_t find_control_character(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7f) return i;
  }
  return std::string::npos;
}

bool starts_as_utf16(const std::string& text) {
  return text.starts_with("\xfe\xff") || text.starts_with("\xff\xfe");
}

}  // namespace forge

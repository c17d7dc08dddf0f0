#include "config/option_value.hpp"

#include <variant>

#include "config/text.hpp"
#include "core/parse.hpp"

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

}  // namespace

bool read_option(const std::string& typed, const std::string& name, const Key* key, YamlNode& value, Report& report) {
  const std::string word(trimmed(typed));
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

}  // namespace forge

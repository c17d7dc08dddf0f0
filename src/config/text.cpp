#include "config/text.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "config/output_file.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"

namespace forge {

namespace {

std::string hex_escape(char c) {
  return formatted("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Words that some YAML reader takes for null or a truth value, in any case.
bool is_reserved(const std::string& text) {
  static constexpr std::array words = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  return std::find(words.begin(), words.end(), lower_case(text)) != words.end();
}

bool is_plain(const std::string& text) {
  if (text.empty() || is_reserved(text)) return false;
  const bool relative = text.rfind("./", 0) == 0 || text.rfind("../", 0) == 0;
  if (!relative && !is_letter(text[0]) && text[0] != '/' && text[0] != '_') return false;
  return std::all_of(
             text.begin(), text.end(),
             [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || std::strchr("_./+-", c) != nullptr; }) &&
         text.find('\0') == std::string::npos;
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string result = "'";
  for (const char c : text.substr(0, most))
    result += is_control(c) || static_cast<unsigned char>(c) >= 0x80 ? hex_escape(c) : std::string(1, c);
  return result + (text.size() > most ? "...'" : "'");
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string printable(std::string_view text, std::size_t most) {
  std::string result(text.substr(0, most));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return result;
}

std::string yaml_text(const std::string& text) {
  if (is_plain(text)) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else
      result += is_control(c) ? hex_escape(c) : std::string(1, c);
  }
  return result + "\"";
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t most = 64;
  a = a.substr(0, most);
  b = b.substr(0, most);
  std::array<std::array<std::size_t, most + 1>, most + 1> d{};
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string joined(const std::vector<std::string>& items, const char* separator) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

std::size_t text_columns(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

std::string wrapped(const std::string& text, const std::string& indent, std::size_t columns) {
  std::string result, line = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line.size() > indent.size() && text_columns(line) + 1 + text_columns(word) > columns) {
      result += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + word;
    begin = end + 1;
  }
  return result + line + "\n";
}

std::string read_text_file(const std::string& path, std::size_t most_bytes, const std::string& what) {
  const FileHandle file = FileHandle::open_to_read(path, what);
  if (file.size() > most_bytes)
    throw BadInput(what + " " + path + " has " + std::to_string(file.size()) + " bytes; legal: at most " +
                   std::to_string(most_bytes));
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void write_text_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.file().write_at(0, text.data(), text.size());
  file.commit();
}

}  // namespace forge

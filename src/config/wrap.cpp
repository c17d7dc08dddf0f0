#include "config/wrap.hpp"

#include <algorithm>

namespace forge {

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

}  // namespace forge

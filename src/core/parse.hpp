#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace forge {

// The parts of a text between separators: one more than there are separators.
inline std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size(); at += parts.back().size() + 1)
    parts.push_back(text.substr(at, text.find(separator, at) - at));
  return parts;
}

// Whether a list of words, parted by spaces, has this one.
inline bool has_word(std::string_view words, std::string_view word) {
  const auto list = parts_of(words, ' ');
  return !word.empty() && std::find(list.begin(), list.end(), word) != list.end();
}

// The text without the spaces, tabs and ends of lines around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr const char* blank = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(blank), text.size()));
  return text.substr(0, text.find_last_not_of(blank) + 1);
}

// Whether a text is a number and nothing else; `value` is it then.
template <class N>
bool reads_as(std::string_view text, N& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace forge

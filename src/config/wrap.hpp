#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forge {

// How many columns a UTF-8 text takes, a character one each.
std::size_t text_columns(std::string_view text);
// A text broken at spaces into lines of at most `columns` that start with `indent`; the last ends with a line break.
std::string wrapped(const std::string& text, const std::string& indent, std::size_t columns = 100);

}  // namespace forge

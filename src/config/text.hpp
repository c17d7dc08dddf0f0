#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace forge {

// A name or value from an untrusted file, quoted for a message: cut after 60 bytes, control characters and bytes
// outside ASCII as \xNN.
std::string shown(std::string_view text);
// Likewise without quotes: cut after `most` bytes, with '?' for bytes that aren't printable ASCII.
std::string printable(std::string_view text, std::size_t most);

// A to Z as a to z.
std::string lower_case(std::string text);

// A text as YAML scalar: plain where no YAML reader can take it for anything else, else in double quotes.
std::string yaml_text(const std::string& text);

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other (optimal string
// alignment); only the first 64 bytes count.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "a, b, c".
std::string joined(const std::vector<std::string>& items, const char* separator = ", ");

// How many columns a UTF-8 text takes, a character one each.
std::size_t text_columns(std::string_view text);
// A text broken at spaces into lines of at most `columns` that start with `indent`; the last ends with a line break.
std::string wrapped(const std::string& text, const std::string& indent, std::size_t columns = 100);

// The whole text of a file that may be at most `most_bytes` long. Throws BadInput that names `what` and the path when
// there is no such regular file, or it is longer; IoFailed when reading fails.
std::string read_text_file(const std::string& path, std::size_t most_bytes, const std::string& what);
// Writes a new file, or in the place of one; nothing half-written stays behind. Throws IoFailed.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace forge

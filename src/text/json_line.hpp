#pragma once

#include <string>
#include <string_view>

namespace forge {

// The result of reading a line of a .jsonl file.
enum class JsonLineKind {
  found,       // the field is a text
  no_json,     // not one JSON map (RFC 8259), or nested deeper than 256
  no_field,    // a map without the field
  other_type,  // the field is no text
};

// The text of a field of a JSON map, as UTF-8; half a surrogate pair becomes U+FFFD. Of a key that is there twice the
// last value holds. The line is valid UTF-8. `at`: where it stops being JSON.
JsonLineKind read_json_field(std::string_view line, std::string_view field, std::string& text, std::size_t& at);

}  // namespace forge

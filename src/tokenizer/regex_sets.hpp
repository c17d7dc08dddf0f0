#pragma once

#include <string>
#include <vector>

namespace forge {

// The characters of \s and \w, to stand in a class of PCRE2, whose own \s has U+180E too, and whose \w has neither
// marks nor Pc. Oniguruma's \w has some fractions and powers of Latin-1, too.
inline constexpr const char* regex_spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
inline constexpr const char* regex_words = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
inline constexpr const char* regex_rust_words = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";
inline constexpr const char* regex_hexadecimal = "0-9a-fA-F";

// A set of characters: the text between brackets, and further expressions of one character each.
struct CharacterSet {
  std::string items;
  std::vector<std::string> others;
  // A pattern of one character that is in it, or isn't.
  std::string expression() const;
  std::string negated() const;
};

// PCRE2's name of a property of Unicode, by its long name in lower case without separators; "": it is not known.
std::string short_property(const std::string& name);
// The items of [:name:]; with `ascii` of ASCII alone. nullptr: there is no such class.
const char* posix_class(const std::string& name, bool ascii);

}  // namespace forge

#pragma once

namespace forge {

// Where the library tokenizers classifies characters otherwise than Unicode 14 (the version of PCRE2 10.42 and utf8proc
// 2.8): its pattern engine knows version 16, its other tables are older.
struct CodeRange {
  char32_t first, last;
};
struct StandIn {
  char32_t first, last, other;
};

// A character that Unicode 14 has, of the category that a later one gives to `code`, and of its length in UTF-8. 0:
// none is needed.
char32_t stand_in(char32_t code);
// Its lower case letter by a later version. 0: as Unicode 14 says.
char32_t later_lowercase(char32_t code);
// The library's answer, given Unicode 14's.
bool library_punctuation(char32_t code, bool unicode_14);
bool library_mark(char32_t code, bool unicode_14);
bool library_nonspacing_mark(char32_t code, bool unicode_14);
bool library_control(char32_t code, bool unicode_14);
// Normal forms leave it as it is, and it is no combining mark to them.
bool has_no_form(char32_t code);

}  // namespace forge

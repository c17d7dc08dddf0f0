#include "tokenizer/regex_sets.hpp"

#include <cstddef>
#include <string_view>

#include "core/parse.hpp"

namespace forge {

namespace {

struct Name {
  const char* name;
  const char* value;
};

// Names and what PCRE2 calls them, parted by spaces.
constexpr std::string_view properties =
    "letter=L uppercaseletter=Lu lowercaseletter=Ll titlecaseletter=Lt modifierletter=Lm otherletter=Lo "
    "casedletter=L& mark=M nonspacingmark=Mn spacingmark=Mc enclosingmark=Me number=N decimalnumber=Nd "
    "letternumber=Nl othernumber=No punctuation=P connectorpunctuation=Pc dashpunctuation=Pd openpunctuation=Ps "
    "closepunctuation=Pe initialpunctuation=Pi finalpunctuation=Pf otherpunctuation=Po symbol=S mathsymbol=Sm "
    "currencysymbol=Sc modifiersymbol=Sk othersymbol=So separator=Z spaceseparator=Zs lineseparator=Zl "
    "paragraphseparator=Zp other=C control=Cc format=Cf unassigned=Cn surrogate=Cs privateuse=Co lc=L& digit=Nd "
    "upper=Uppercase lower=Lowercase alpha=Alphabetic punct=P";

// Older characters that Unicode 15 and 16 made alphabetic, or lowercase.
#define NEWLY_ALPHABETIC "\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}\\x{11081}"
#define NEWLY_LOWERCASE "\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}"

// Oniguruma's own: its punctuation has all symbols, its words lack the numbers that \w has.
constexpr Name classes[] = {{"alpha", "\\p{Alphabetic}" NEWLY_ALPHABETIC},
                            {"digit", "\\p{Nd}"},
                            {"alnum", "\\p{Alphabetic}\\p{Nd}" NEWLY_ALPHABETIC},
                            {"space", regex_spaces},
                            {"upper", "\\p{Uppercase}"},
                            {"lower", "\\p{Lowercase}" NEWLY_LOWERCASE},
                            {"punct", "\\p{P}\\p{S}"},
                            {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
                            {"xdigit", regex_hexadecimal},
                            {"cntrl", "\\p{Cc}"},
                            {"blank", "\\p{Zs}\\t"}};
#undef NEWLY_ALPHABETIC
#undef NEWLY_LOWERCASE

constexpr Name ascii_classes[] = {{"alpha", "a-zA-Z"},
                                  {"digit", "0-9"},
                                  {"alnum", "0-9a-zA-Z"},
                                  {"space", "\\t\\n\\x{b}\\f\\r "},
                                  {"upper", "A-Z"},
                                  {"lower", "a-z"},
                                  {"punct", "!-\\/:-@\\[-`{-~"},
                                  {"word", "0-9a-zA-Z_"},
                                  {"xdigit", regex_hexadecimal},
                                  {"cntrl", "\\x{0}-\\x{1f}\\x{7f}"},
                                  {"blank", " \\t"}};

template <std::size_t n>
const char* find(const Name (&names)[n], const std::string& name) {
  for (const Name& row : names)
    if (name == row.name) return row.value;
  return nullptr;
}

}  // namespace

std::string CharacterSet::expression() const {
  if (others.empty()) return items.empty() ? "(?!)" : "[" + items + "]";
  // Atomic: a character that two of them have would be tried twice, and a repeated set would take exponential time.
  std::string text = items.empty() ? "(?>" : "(?>[" + items + "]|";
  for (std::size_t i = 0; i < others.size(); ++i) text += (i ? "|" : "") + others[i];
  return text + ")";
}

std::string CharacterSet::negated() const {
  if (others.empty()) return items.empty() ? "(?s:.)" : "[^" + items + "]";
  return "(?:(?!" + expression() + ")(?s:.))";
}

std::string short_property(const std::string& name) {
  for (const std::string_view pair : parts_of(properties, ' '))
    if (const std::size_t equals = pair.find('='); pair.substr(0, equals) == name)
      return std::string(pair.substr(equals + 1));
  return "";
}

const char* posix_class(const std::string& name, bool ascii) {
  return ascii ? find(ascii_classes, name) : find(classes, name);
}

}  // namespace forge

#include "tokenizer/regex_sets.hpp"

#include <cstddef>

namespace forge {

namespace {

struct Name {
  const char* name;
  const char* value;
};

constexpr Name properties[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"casedletter", "L&"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"lc", "L&"},
    {"digit", "Nd"},
    {"upper", "Uppercase"},
    {"lower", "Lowercase"},
    {"alpha", "Alphabetic"},
};

constexpr Name classes[] = {
    {"alpha", "\\p{Alphabetic}"}, {"digit", "\\p{Nd}"},        {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"space", regex_spaces},      {"upper", "\\p{Uppercase}"}, {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}$+<=>^`|~"}, {"word", regex_words},       {"xdigit", regex_hexadecimal},
    {"cntrl", "\\p{Cc}"},         {"blank", "\\p{Zs}\\t"},
};

constexpr Name ascii_classes[] = {
    {"alpha", "a-zA-Z"},
    {"digit", "0-9"},
    {"alnum", "0-9a-zA-Z"},
    {"space", "\\t\\n\\x{b}\\f\\r "},
    {"upper", "A-Z"},
    {"lower", "a-z"},
    {"punct", "!-\\/:-@\\[-`{-~"},
    {"word", "0-9a-zA-Z_"},
    {"xdigit", regex_hexadecimal},
    {"cntrl", "\\x{0}-\\x{1f}\\x{7f}"},
    {"blank", " \\t"},
};

template <std::size_t n>
const char* find(const Name (&names)[n], const std::string& name) {
  for (const Name& row : names)
    if (name == row.name) return row.value;
  return nullptr;
}

}  // namespace

std::string CharacterSet::expression() const {
  if (others.empty()) return items.empty() ? "(?!)" : "[" + items + "]";
  std::string text = items.empty() ? "(?:" : "(?:[" + items + "]|";
  for (std::size_t i = 0; i < others.size(); ++i) text += (i ? "|" : "") + others[i];
  return text + ")";
}

std::string CharacterSet::negated() const {
  if (others.empty()) return items.empty() ? "(?s:.)" : "[^" + items + "]";
  return "(?:(?!" + expression() + ")(?s:.))";
}

const char* short_property(const std::string& name) {
  return find(properties, name);
}

const char* posix_class(const std::string& name, bool ascii) {
  return ascii ? find(ascii_classes, name) : find(classes, name);
}

}  // namespace forge

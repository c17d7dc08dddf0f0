#include <cctype>
#include <vector>

#include "config/text.hpp"
#include "core/error.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/regex_sets.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

class Translator {
 public:
  Translator(std::string_view pattern, RegexDialect dialect, const std::string& where)
      : in_(pattern), rust_(dialect == RegexDialect::rust), where_(where) {}

  TranslatedPattern run() {
    while (at_ < in_.size()) step();
    return {out_, forward_};
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw BadInput(where_ + ": the pattern " + shown(std::string(in_)) + " has " + what + ", which is not available");
  }
  bool ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  char take() {
    if (at_ == in_.size()) refuse("an end where more was expected");
    return in_[at_++];
  }
  bool takes(char c) {
    const bool there = at_ < in_.size() && in_[at_] == c;
    at_ += there;
    return there;
  }
  std::string until(char end) {
    const std::size_t close = in_.find(end, at_);
    if (close == std::string_view::npos) refuse(std::string("no ") + end);
    const std::string text(in_.substr(at_, close - at_));
    at_ = close + 1;
    return text;
  }
  void atom(const std::string& text) {
    atom_ = out_.size();
    out_ += text;
  }
  const char* word_items() const { return rust_ ? regex_rust_words : regex_words; }

  void step() {
    const char c = in_[at_];
    if (c == '\\') return escape();
    if (c == '[') return ++at_, atom(set_expression());
    if (c == '(') return open();
    if (c == '{' || c == '?' || c == '*' || c == '+') return quantifier();
    ++at_;
    if (c == ')') {
      if (groups_.empty()) refuse("a ) too many");
      atom_ = groups_.back();
      groups_.pop_back();
      out_ += ')';
      return;
    }
    if (c == '^' || c == '$') forward_ = false;
    if (c == '|') return void(out_ += c);
    atom(character(c));
  }
  // With all of its bytes, of which the first one is taken.
  std::string character(char first) {
    std::string text(1, first);
    while (at_ < in_.size() && continues_character(in_[at_])) text += in_[at_++];
    return text;
  }

  void open() {
    const std::size_t begin = out_.size();
    if (ahead("(?#")) return void(until(')'));
    if (ahead("(?<=") || ahead("(?<!")) forward_ = false;
    if (ahead("(?~") || ahead("(*") || ahead("(?@") || ahead("(?{")) refuse("an absent function or a call");
    ++at_;
    out_ += '(';
    if (takes('?')) {
      out_ += '?';
      const std::size_t flags = at_;
      while (at_ < in_.size() && (std::isalpha(static_cast<unsigned char>(in_[at_])) || in_[at_] == '-')) ++at_;
      const bool are_flags = at_ > flags && at_ < in_.size() && (in_[at_] == ')' || in_[at_] == ':');
      if (are_flags) add_flags(in_.substr(flags, at_ - flags));
      if (are_flags && takes(')')) return void(out_ += ')');
      if (!are_flags) at_ = flags;
    }
    groups_.push_back(begin);
  }
  void add_flags(std::string_view flags) {
    for (const char f : flags) {
      if (f == '-' || f == 'i' || f == 'x' || (rust_ && (f == 's' || f == 'm')))
        out_ += f;
      else if (f == 'm')
        out_ += 's';  // a dot is any character
      else if (!(rust_ && f == 'u'))
        refuse(std::string("the flag ") + f);
    }
  }

  void quantifier() {
    std::string q(1, in_[at_++]);
    bool interval = false, exact = false;
    if (q == "{") {
      const std::size_t close = in_.find('}', at_);
      const std::string_view inside = close == std::string_view::npos ? "" : in_.substr(at_, close - at_);
      bool digits = false, other = false;
      std::size_t commas = 0;
      for (const char c : inside) {
        digits = digits || std::isdigit(static_cast<unsigned char>(c));
        commas += c == ',';
        other = other || (!std::isdigit(static_cast<unsigned char>(c)) && c != ',');
      }
      if (!digits || other || commas > 1) return atom("\\{");
      at_ = close + 1;
      q = std::string("{") + (inside.front() == ',' ? "0" : "") + std::string(inside) + "}";
      interval = true;
      exact = commas == 0;
    }
    if (atom_ == std::string::npos) refuse("a quantifier of nothing");
    const char more = at_ < in_.size() ? in_[at_] : 0;
    if (interval && !rust_ && (more == '+' || (more == '?' && exact))) {
      // There the second quantifier is one of its own.
      out_.insert(atom_, "(?:");
      out_ += q + ")";
      return;
    }
    out_ += q;
    if (more == '?' || more == '+') out_ += in_[at_++];
  }

  std::string hexadecimal_escape(char kind) {
    std::string digits;
    if (takes('{')) {
      digits = until('}');
    } else {
      const std::size_t most = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
      while (digits.size() < most && at_ < in_.size() && std::isxdigit(static_cast<unsigned char>(in_[at_])))
        digits += in_[at_++];
    }
    if (digits.empty() || digits.size() > 8) refuse(std::string("the escape \\") + kind);
    return "\\x{" + digits + "}";
  }

  // \p, \P: what PCRE2 calls the property, as an item of a class.
  CharacterSet property(bool negative) {
    std::string name = takes('{') ? until('}') : std::string(1, take());
    if (!name.empty() && name.front() == '^') negative = !negative, name.erase(0, 1);
    std::string plain, kind, own;  // own: as it is written
    for (const char c : name) {
      if (c == '=' || c == ':') {
        kind = std::move(plain), plain.clear(), own.clear();
      } else if (c != '_' && c != ' ' && c != '-') {
        plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        own += c;
      }
    }
    if (plain == "space" || plain == "whitespace") return group(regex_spaces, negative);
    if (plain == "word") return group(word_items(), negative);
    if (plain == "alnum") return group("\\p{Alphabetic}\\p{Nd}", negative);
    if (plain == "any" || plain == "assigned" || plain.empty()) {
      if (plain != "any") refuse("the property " + name);
      return group("\\x{0}-\\x{10ffff}", negative);
    }
    if (std::string known = short_property(plain); !known.empty()) own = std::move(known);
    const std::string letter = negative ? "\\P{" : "\\p{";
    const bool script = kind.empty() || kind == "script" || kind == "sc";
    for (const std::string& form :
         {script ? "sc:" + own : std::string(), kind == "scx" ? "scx:" + own : std::string(), own})
      if (!form.empty() && Regex::compiles("\\p{" + form + "}")) return {letter + form + "}", {}};
    refuse("the property " + name);
  }
  static CharacterSet group(const std::string& items, bool negative) {
    if (!negative) return {items, {}};
    return {"", {"[^" + items + "]"}};
  }

  // An escape that stands for a set or a character, inside and outside of classes. False: it is another one.
  bool common_escape(char c, CharacterSet& set) {
    switch (c) {
      case 's':
      case 'S':
        return set = group(regex_spaces, c == 'S'), true;
      case 'd':
      case 'D':
        return set = {c == 'd' ? "\\p{Nd}" : "\\P{Nd}", {}}, true;
      case 'w':
      case 'W':
        return set = group(word_items(), c == 'W'), true;
      case 'p':
      case 'P':
        return set = property(c == 'P'), true;
      case 'v':
        return set = {"\\x{b}", {}}, true;
      case 'x':
      case 'u':
        return set = {hexadecimal_escape(c), {}}, true;
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
        return set = {std::string("\\") + c, {}}, true;
      default:
        break;
    }
    if (!rust_ && (c == 'h' || c == 'H')) return set = group(regex_hexadecimal, c == 'H'), true;
    if (!rust_ && c == 'e') return set = {"\\x{1b}", {}}, true;
    if (rust_ && c == 'U') return set = {hexadecimal_escape('U'), {}}, true;
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      const bool ascii = static_cast<unsigned char>(c) < 0x80;
      return set = {ascii ? std::string("\\") + c : character(c), {}}, true;
    }
    return false;
  }

  void escape() {
    ++at_;
    const char c = take();
    CharacterSet set;
    if (common_escape(c, set)) {
      // A character alone needs no brackets.
      const bool single = set.others.empty() && (set.items.size() <= 2 || set.items.rfind("\\x{", 0) == 0) &&
                          set.items.find('-') == std::string::npos && set.items.find('}') + 1 >= set.items.size();
      return atom(single ? set.items : set.expression());
    }
    const std::string word = std::string("[") + word_items() + "]";
    switch (c) {
      case 'b':
        forward_ = false;
        return atom("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
      case 'B':
        forward_ = false;
        return atom("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
        forward_ = false;
        return atom(std::string("\\") + c);
      default:
        break;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) || c == 'R' || c == 'K' || c == 'k')
      return atom(std::string("\\") + c);
    refuse(std::string("the escape \\") + c);
  }

  // Behind a class's [.
  std::string set_expression() {
    bool negative = false;
    const CharacterSet set = read_set(negative, 0);
    return negative ? set.negated() : set.expression();
  }
  // To the ] that closes it; && binds weaker than what stands side by side.
  CharacterSet read_set(bool& negative, int depth) {
    if (depth > 20) refuse("classes nested deeper than 20");
    negative = takes('^');
    CharacterSet set, whole;
    bool intersects = false;
    for (bool first = true;; first = false) {
      if (at_ == in_.size()) refuse("a class without an end");
      if (in_[at_] == ']' && !first) break;
      if (ahead("&&")) {
        at_ += 2;
        whole = intersects ? meet(whole, set) : set;
        intersects = true;
        set = {};
        continue;
      }
      add_item(set, depth);
    }
    ++at_;
    return intersects ? meet(whole, set) : set;
  }
  static CharacterSet meet(const CharacterSet& a, const CharacterSet& b) {
    return {"", {"(?:(?=" + b.expression() + ")" + a.expression() + ")"}};
  }

  void add_item(CharacterSet& set, int depth) {
    if (ahead("[:")) return add_posix(set);
    const char c = take();
    if (c == '[') {
      bool negative = false;
      const CharacterSet inner = read_set(negative, depth + 1);
      if (negative) return void(set.others.push_back(inner.negated()));
      return append(set, inner);
    }
    CharacterSet item;
    if (c == '\\') {
      const char e = take();
      if (e == 'b')
        item = {"\\x{8}", {}};
      else if (e == '0')
        item = {"\\x{0}", {}};
      else if (!common_escape(e, item))
        refuse(std::string("the escape \\") + e + " in a class");
    } else {
      item.items = c == '-' || c == ']' || c == '^' ? std::string("\\") + c : character(c);
      // A range: its - and its end are other items to PCRE2 as they are here.
      if (c == '-' && !set.items.empty() && at_ < in_.size() && in_[at_] != ']' && can_begin_range_) item.items = "-";
    }
    const bool is_dash = item.items == "-";
    can_begin_range_ = !is_dash && item.others.empty() && !ended_range_ && is_character(item.items);
    ended_range_ = is_dash;
    if (!is_dash && item.items.rfind("\\p", 0) == 0) can_begin_range_ = false;
    append(set, item);
    if (ended_range_ && at_ < in_.size()) {
      // The end of the range.
      ended_range_ = false;
      add_item(set, depth);
      can_begin_range_ = false;
    }
  }
  static bool is_character(const std::string& items) {
    if (items.rfind("\\x{", 0) == 0) return items.find('}') + 1 == items.size();
    return items.rfind("\\p", 0) != 0 && items.rfind("\\P", 0) != 0;
  }
  static void append(CharacterSet& set, const CharacterSet& more) {
    set.items += more.items;
    set.others.insert(set.others.end(), more.others.begin(), more.others.end());
  }
  void add_posix(CharacterSet& set) {
    const std::size_t close = in_.find(":]", at_);
    if (close == std::string_view::npos) refuse("a [: without :]");
    std::string name(in_.substr(at_ + 2, close - at_ - 2));
    at_ = close + 2;
    const bool negative = !name.empty() && name.front() == '^';
    if (negative) name.erase(0, 1);
    const char* const found = posix_class(name, rust_);
    if (!found) refuse("the class [:" + name + ":]");
    append(set, group(found, negative));
    can_begin_range_ = false;
  }

  std::string_view in_;
  bool rust_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0, atom_ = std::string::npos;
  std::vector<std::size_t> groups_;
  bool forward_ = true, can_begin_range_ = false, ended_range_ = false;
};

}  // namespace

TranslatedPattern translate_pattern(std::string_view pattern, RegexDialect dialect, const std::string& where) {
  return Translator(pattern, dialect, where).run();
}

}  // namespace forge

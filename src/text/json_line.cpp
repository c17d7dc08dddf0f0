#include "text/json_line.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr int most_depth = 256;

// The first place from `at` on of a quote, a backslash or a control character, or the text's end; eight bytes at a
// time.
std::size_t plain_end(std::string_view text, std::size_t at) {
  constexpr std::uint64_t ones = 0x0101010101010101u, highs = ones << 7;
  const auto zeros = [](std::uint64_t word) { return (word - ones) & ~word & highs; };
  for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    const std::uint64_t below_space = (word - 0x20 * ones) & ~word & highs;
    // The lowest bit that is set here stands in the first such byte.
    const std::uint64_t found = zeros(word ^ '"' * ones) | zeros(word ^ '\\' * ones) | below_space;
    if (found != 0) return at + static_cast<std::size_t>(std::countr_zero(found)) / 8;
  }
  while (at < text.size() && text[at] != '"' && text[at] != '\\' && static_cast<std::uint8_t>(text[at]) >= 0x20) ++at;
  return at;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  std::size_t at() const { return at_; }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool at_end() const { return at_ == text_.size(); }
  bool sees(char c) const { return at_ < text_.size() && text_[at_] == c; }

  // A text; its characters to `out`, if that is given.
  bool string(std::string* out) {
    if (!take('"')) return false;
    if (out) out->clear();
    while (at_ < text_.size()) {
      const std::size_t begin = at_;
      at_ = plain_end(text_, at_);
      if (out) out->append(text_.substr(begin, at_ - begin));
      if (take('"')) return true;
      if (!take('\\') || !escape(out)) return false;
    }
    return false;
  }
  bool value(int depth) {
    skip_spaces();
    if (at_ == text_.size() || depth > most_depth) return false;
    switch (text_[at_]) {
      case '"':
        return string(nullptr);
      case '{':
        return map(depth);
      case '[':
        return list(depth);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      case 'N':
        return word("NaN");
      case 'I':
        return word("Infinity");
      default:
        return number();
    }
  }

 private:
  bool word(std::string_view w) {
    if (!text_.substr(at_).starts_with(w)) return false;
    at_ += w.size();
    return true;
  }
  bool digits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin;
  }
  bool number() {
    if (take('-') && sees('I')) return word("Infinity");
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }
  bool map(int depth) {
    take('{');
    skip_spaces();
    if (take('}')) return true;
    do {
      skip_spaces();
      if (!string(nullptr)) return false;
      skip_spaces();
      if (!take(':') || !value(depth + 1)) return false;
      skip_spaces();
    } while (take(','));
    return take('}');
  }
  bool list(int depth) {
    take('[');
    skip_spaces();
    if (take(']')) return true;
    do {
      if (!value(depth + 1)) return false;
      skip_spaces();
    } while (take(','));
    return take(']');
  }
  bool hexadecimal(char32_t& code) {
    code = 0;
    for (int i = 0; i < 4; ++i) {
      if (at_ == text_.size()) return false;
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      code = code << 4 | static_cast<char32_t>(digit);
    }
    return true;
  }
  bool escape(std::string* out) {
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
    if (const std::size_t i = names.find(c); i != std::string_view::npos) {
      if (out) *out += values[i];
      return true;
    }
    char32_t code = 0;
    if (c != 'u' || !hexadecimal(code)) return false;
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      const std::size_t before = at_;
      at_ += 2;
      char32_t low = 0;
      if (!hexadecimal(low)) return false;
      if (low >= 0xDC00 && low < 0xE000)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      else
        at_ = before;
    }
    if (code >= 0xD800 && code < 0xE000) code = replacement_character;
    if (out) append_utf8(*out, code);
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

JsonLineKind read_json_field(std::string_view line, std::string_view field, std::string& text, std::size_t& at) {
  Scanner scan(line);
  JsonLineKind result = JsonLineKind::no_field;
  std::string key;
  const auto fail = [&] {
    at = scan.at();
    return JsonLineKind::no_json;
  };
  scan.skip_spaces();
  if (!scan.take('{')) return fail();
  scan.skip_spaces();
  if (!scan.take('}')) {
    do {
      scan.skip_spaces();
      if (!scan.string(&key)) return fail();
      scan.skip_spaces();
      if (!scan.take(':')) return fail();
      scan.skip_spaces();
      const bool wanted = key == field;
      const bool is_text = scan.sees('"');
      if (wanted) result = is_text ? JsonLineKind::found : JsonLineKind::other_type;
      if (!(wanted && is_text ? scan.string(&text) : scan.value(1))) return fail();
      scan.skip_spaces();
    } while (scan.take(','));
    if (!scan.take('}')) return fail();
  }
  scan.skip_spaces();
  return scan.at_end() ? result : fail();
}

}  // namespace forge

#include "tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include "core/error.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/unicode_forms.hpp"

namespace forge {

namespace {

// What a map of characters appends for one.
template <class Map>
void map_characters(std::string& text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_valid(text, at);
    map(c.code, out);
    at += c.bytes;
  }
  text = std::move(out);
}

// Of a step that changes each character by itself.
template <class Map>
Normalizer by_character(const Map& map) {
  return {.apply = [map](std::string& text, RegexScratch&) { map_characters(text, map); }, .local = true};
}

void keep_all_but_marks(char32_t c, std::string& out) {
  if (!is_mark(c)) append_utf8(out, c);
}

void lower(char32_t c, std::string& out) {
  append_lowercase(out, c);
}

bool is_dropped_by_nmt(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}
void map_as_nmt(char32_t c, std::string& out) {
  const bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  if (!is_dropped_by_nmt(c)) append_utf8(out, space ? U' ' : c);
}

void strip(std::string& text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Decoded c = decode_valid(text, begin);
    if (!is_white_space(c.code)) break;
    begin += c.bytes;
  }
  while (right && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && continues_character(text[last])) --last;
    if (!is_white_space(decode_valid(text, last).code)) break;
    end = last;
  }
  text.erase(end);
  text.erase(0, begin);
}

// What replaces a match takes the place of its last character.
bool stands_for_first(std::string_view match, const std::string& content) {
  return match.empty() || (!content.empty() && decode_valid(match, 0).bytes == match.size());
}

void replace_matches(std::string& text, const Regex& pattern, const std::string& content, RegexScratch& scratch) {
  std::string out, buffer;
  std::size_t done = 0;
  Regex::Match match;
  const std::string_view seen = with_stand_ins(text, buffer);
  for (RegexMatches matches(pattern, scratch, seen); matches.next(match); done = match.end) {
    out.append(text, done, match.begin - done);
    out += content;
    check_growth(text.size(), out.size());
  }
  if (done == 0 && out.empty()) return;
  out.append(text, done);
  text = std::move(out);
}

// As the crate spm_precompiled is called: a grapheme cluster below six bytes at once, others character by character;
// the shortest rule that fits replaces all of the part.
class Precompiled {
 public:
  Precompiled(std::string_view charsmap, const std::string& where) : map_(charsmap, where) {}
  void apply(std::string& text) const {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = cluster_end(text, at);
      append(std::string_view(text).substr(at, end - at), out);
      at = end;
    }
    text = std::move(out);
  }

 private:
  static std::size_t cluster_end(const std::string& text, std::size_t at) {
    Decoded c = decode_valid(text, at);
    utf8proc_int32_t state = 0;
    while (true) {
      at += c.bytes;
      if (at == text.size()) return at;
      const Decoded next = decode_valid(text, at);
      if (c.code < 0x80 && next.code < 0x80 && state == 0) {
        if (c.code == '\r' && next.code == '\n') return at + 1;
        return at;
      }
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                           static_cast<utf8proc_int32_t>(next.code), &state))
        return at;
      c = next;
    }
  }
  void append(std::string_view cluster, std::string& out) const {
    constexpr std::size_t whole_below = 6;
    if (cluster.size() < whole_below)
      if (const auto rule = map_.shortest(cluster); rule.bytes > 0) return void(out += rule.replacement);
    for (std::size_t at = 0; at < cluster.size();) {
      const std::string_view part = cluster.substr(at, decode_valid(cluster, at).bytes);
      const auto rule = map_.shortest(part);
      out += rule.bytes > 0 ? rule.replacement : part;
      at += part.size();
    }
  }

  Charsmap map_;
};

// The steps of BERT's BasicTokenizer.
bool is_cleaned(char32_t c) {
  const bool plain = c == '\t' || c == '\n' || c == '\r';
  return c == 0 || c == replacement_character || (!plain && is_control(c));
}
void clean(char32_t c, std::string& out) {
  if (!is_cleaned(c)) append_utf8(out, is_white_space(c) ? U' ' : c);
}
void spread(char32_t c, std::string& out) {
  const bool han = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
                   (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
                   (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  if (han) out += ' ';
  append_utf8(out, c);
  if (han) out += ' ';
}
void keep_all_but_nonspacing(char32_t c, std::string& out) {
  if (!is_nonspacing_mark(c)) append_utf8(out, c);
}

}  // namespace

void check_growth(std::size_t from, std::size_t to) {
  constexpr std::size_t most = 1 << 20, most_times = 1024;
  if (to > most + most_times * from)
    throw BadInput("the tokenizer's replacements make more than " + std::to_string(to) + " bytes of a text of " +
                   std::to_string(from) + "; legal: at most 1 MiB and " + std::to_string(most_times) +
                   " for each byte");
}

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  std::size_t at = text.find(pattern);
  if (at == std::string::npos || pattern.empty()) return;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(pattern, done)) {
    out.append(text, done, at - done);
    out += content;
    check_growth(text.size(), out.size());
    done = at + pattern.size();
  }
  out.append(text, done);
  text = std::move(out);
}

bool normalize(const Normalizers& steps, std::string& text, RegexScratch& scratch) {
  bool kept = true;
  const std::size_t before = text.size();
  for (const auto& step : steps) {
    kept = kept && (text.empty() || step.keeps_start(text, scratch));
    step.apply(text, scratch);
    check_growth(before, text.size());
  }
  return kept;
}

Normalizer make_unicode_normalizer(const std::string& form) {
  const UnicodeNormalizer normalizer(form == "NFC"    ? UnicodeForm::nfc
                                     : form == "NFD"  ? UnicodeForm::nfd
                                     : form == "NFKC" ? UnicodeForm::nfkc
                                                      : UnicodeForm::nfkd);
  return {.apply = [normalizer](std::string& text, RegexScratch&) { normalizer.apply(text); }, .local = true};
}

Normalizer make_lowercase() {
  return by_character(lower);
}

Normalizer make_strip_accents() {
  Normalizer step = by_character(keep_all_but_marks);
  step.keeps_start = [](std::string_view text, RegexScratch&) { return !is_mark(decode_valid(text, 0).code); };
  return step;
}

Normalizer make_nmt() {
  Normalizer step = by_character(map_as_nmt);
  step.keeps_start = [](std::string_view text, RegexScratch&) {
    return !is_dropped_by_nmt(decode_valid(text, 0).code);
  };
  return step;
}

Normalizer make_strip(bool left, bool right) {
  return {[=](std::string& text, RegexScratch&) { strip(text, left, right); },
          [=](std::string_view text, RegexScratch&) { return !left || !is_white_space(decode_valid(text, 0).code); }};
}

Normalizer make_prepend(const std::string& prefix) {
  return {.apply = [prefix](std::string& text, RegexScratch&) {
    if (!text.empty()) text.insert(0, prefix);
  }};
}

Normalizer make_replace(const std::string& pattern, const std::string& content) {
  return {[=](std::string& text, RegexScratch&) { replace_all(text, pattern, content); },
          [=](std::string_view text, RegexScratch&) {
            return !text.starts_with(pattern) || stands_for_first(pattern, content);
          },
          pattern.size() == 1};
}

Normalizer make_replace(const Regex& pattern, const std::string& content) {
  return {[=](std::string& text, RegexScratch& scratch) { replace_matches(text, pattern, content, scratch); },
          [=](std::string_view text, RegexScratch& scratch) {
            std::string buffer;
            Regex::Match match;
            return !pattern.find(scratch, with_stand_ins(text, buffer), 0, match) || match.begin > 0 ||
                   stands_for_first(text.substr(0, match.end), content);
          }};
}

Normalizer make_precompiled(std::string_view charsmap, const std::string& where) {
  const Precompiled rules(charsmap, where);
  // Between two letters clusters end.
  return {.apply = [rules](std::string& text, RegexScratch&) { rules.apply(text); }, .local = true};
}

Normalizer make_byte_level_normalizer() {
  return {.apply = [](std::string& text, RegexScratch&) { text = to_byte_alphabet(text); }, .local = true};
}

Normalizer make_bert_normalizer(const BertOptions& options) {
  const UnicodeNormalizer decomposed(UnicodeForm::nfd);
  return {[=](std::string& text, RegexScratch&) {
            if (options.clean_text) map_characters(text, clean);
            if (options.handle_chinese_chars) map_characters(text, spread);
            if (options.strip_accents) decomposed.apply(text);
            if (options.strip_accents) map_characters(text, keep_all_but_nonspacing);
            if (options.lowercase) map_characters(text, lower);
          },
          [=](std::string_view text, RegexScratch&) {
            const char32_t c = decode_valid(text, 0).code;
            return !(options.clean_text && is_cleaned(c)) && !(options.strip_accents && is_nonspacing_mark(c));
          }};
}

}  // namespace forge

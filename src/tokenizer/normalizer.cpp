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

class Unicode : public Normalizer {
 public:
  explicit Unicode(UnicodeForm form) : normalizer_(form) {}
  void apply(std::string& text, RegexScratch&) const override {
    std::string out;
    if (normalizer_.apply(text, out)) text = std::move(out);
  }
  bool local() const override { return true; }

 private:
  UnicodeNormalizer normalizer_;
};

class Lowercase : public Normalizer {
 public:
  void apply(std::string& text, RegexScratch&) const override {
    map_characters(text, [](char32_t c, std::string& out) { append_lowercase(out, c); });
  }
  bool local() const override { return true; }
};

class StripAccents : public Normalizer {
 public:
  void apply(std::string& text, RegexScratch&) const override {
    map_characters(text, [](char32_t c, std::string& out) {
      if (!is_mark(c)) append_utf8(out, c);
    });
  }
  bool keeps_start(std::string_view text, RegexScratch&) const override { return !is_mark(decode_valid(text, 0).code); }
  bool local() const override { return true; }
};

class Nmt : public Normalizer {
 public:
  void apply(std::string& text, RegexScratch&) const override {
    map_characters(text, [](char32_t c, std::string& out) {
      const bool space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (!is_dropped(c)) append_utf8(out, space ? U' ' : c);
    });
  }
  bool keeps_start(std::string_view text, RegexScratch&) const override {
    return !is_dropped(decode_valid(text, 0).code);
  }
  bool local() const override { return true; }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text, RegexScratch&) const override {
    std::size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const Decoded c = decode_valid(text, begin);
      if (!is_white_space(c.code)) break;
      begin += c.bytes;
    }
    while (right_ && begin < end) {
      std::size_t last = end - 1;
      while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!is_white_space(decode_valid(text, last).code)) break;
      end = last;
    }
    text.erase(end);
    text.erase(0, begin);
  }
  bool keeps_start(std::string_view text, RegexScratch&) const override {
    return !left_ || !is_white_space(decode_valid(text, 0).code);
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  void apply(std::string& text, RegexScratch&) const override {
    if (!text.empty()) text.insert(0, text_);
  }

 private:
  std::string text_;
};

// What replaces a match takes the place of its last character.
bool stands_for_first(std::string_view match, const std::string& content) {
  return match.empty() || (!content.empty() && decode_valid(match, 0).bytes == match.size());
}

class ReplaceText : public Normalizer {
 public:
  ReplaceText(std::string pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, RegexScratch&) const override { replace_all(text, pattern_, content_); }
  bool keeps_start(std::string_view text, RegexScratch&) const override {
    return !text.starts_with(pattern_) || stands_for_first(pattern_, content_);
  }
  bool local() const override { return pattern_.size() == 1; }

 private:
  std::string pattern_, content_;
};

class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, RegexScratch& scratch) const override {
    std::string out, buffer;
    std::size_t done = 0;
    Regex::Match match;
    const std::string_view seen = with_stand_ins(text, buffer);
    for (RegexMatches matches(pattern_, scratch, seen); matches.next(match); done = match.end) {
      out.append(text, done, match.begin - done);
      out += content_;
      check_growth(text.size(), out.size());
    }
    if (done == 0 && out.empty()) return;
    out.append(text, done);
    text = std::move(out);
  }
  bool keeps_start(std::string_view text, RegexScratch& scratch) const override {
    std::string buffer;
    Regex::Match match;
    return !pattern_.find(scratch, with_stand_ins(text, buffer), 0, match) || match.begin > 0 ||
           stands_for_first(text.substr(0, match.end), content_);
  }

 private:
  Regex pattern_;
  std::string content_;
};

// As the crate spm_precompiled is called: a grapheme cluster below six bytes at once, others character by character;
// the shortest rule that fits replaces all of the part.
class Precompiled : public Normalizer {
 public:
  Precompiled(std::string_view charsmap, const std::string& where) : map_(charsmap, where) {}
  void apply(std::string& text, RegexScratch&) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = cluster_end(text, at);
      append(std::string_view(text).substr(at, end - at), out);
      at = end;
    }
    text = std::move(out);
  }
  bool local() const override { return true; }  // between two letters clusters end

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

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(std::string& text, RegexScratch&) const override { text = to_byte_alphabet(text); }
  bool local() const override { return true; }
};

// The steps of BERT's BasicTokenizer.
class Bert : public Normalizer {
 public:
  explicit Bert(const BertOptions& options) : options_(options), decomposed_(UnicodeForm::nfd) {}
  void apply(std::string& text, RegexScratch&) const override {
    if (options_.clean_text) map_characters(text, clean);
    if (options_.handle_chinese_chars) map_characters(text, spread);
    if (options_.strip_accents) {
      std::string out;
      if (decomposed_.apply(text, out)) text = std::move(out);
      map_characters(text, [](char32_t c, std::string& to) {
        if (!is_nonspacing_mark(c)) append_utf8(to, c);
      });
    }
    if (options_.lowercase) map_characters(text, [](char32_t c, std::string& to) { append_lowercase(to, c); });
  }
  bool keeps_start(std::string_view text, RegexScratch&) const override {
    const char32_t c = decode_valid(text, 0).code;
    return !(options_.clean_text && is_cleaned(c)) && !(options_.strip_accents && is_nonspacing_mark(c));
  }

 private:
  static bool is_cleaned(char32_t c) {
    const bool plain = c == '\t' || c == '\n' || c == '\r';
    return c == 0 || c == replacement_character || (!plain && is_control(c));
  }
  static void clean(char32_t c, std::string& out) {
    if (!is_cleaned(c)) append_utf8(out, is_white_space(c) ? U' ' : c);
  }
  static void spread(char32_t c, std::string& out) {
    const bool han = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
                     (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
                     (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
    if (han) out += ' ';
    append_utf8(out, c);
    if (han) out += ' ';
  }
  BertOptions options_;
  UnicodeNormalizer decomposed_;
};

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
    kept = kept && (text.empty() || step->keeps_start(text, scratch));
    step->apply(text, scratch);
    check_growth(before, text.size());
  }
  return kept;
}

std::unique_ptr<Normalizer> make_unicode_normalizer(const std::string& form) {
  return std::make_unique<Unicode>(form == "NFC"    ? UnicodeForm::nfc
                                   : form == "NFD"  ? UnicodeForm::nfd
                                   : form == "NFKC" ? UnicodeForm::nfkc
                                                    : UnicodeForm::nfkd);
}
std::unique_ptr<Normalizer> make_lowercase() {
  return std::make_unique<Lowercase>();
}
std::unique_ptr<Normalizer> make_strip_accents() {
  return std::make_unique<StripAccents>();
}
std::unique_ptr<Normalizer> make_nmt() {
  return std::make_unique<Nmt>();
}
std::unique_ptr<Normalizer> make_strip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}
std::unique_ptr<Normalizer> make_prepend(const std::string& text) {
  return std::make_unique<Prepend>(text);
}
std::unique_ptr<Normalizer> make_replace_text(const std::string& pattern, const std::string& content) {
  return std::make_unique<ReplaceText>(pattern, content);
}
std::unique_ptr<Normalizer> make_replace(Regex pattern, const std::string& content) {
  return std::make_unique<Replace>(std::move(pattern), content);
}
std::unique_ptr<Normalizer> make_precompiled(std::string_view charsmap, const std::string& where) {
  return std::make_unique<Precompiled>(charsmap, where);
}
std::unique_ptr<Normalizer> make_byte_level_normalizer() {
  return std::make_unique<ByteLevelNormalizer>();
}
std::unique_ptr<Normalizer> make_bert_normalizer(const BertOptions& options) {
  return std::make_unique<Bert>(options);
}

}  // namespace forge

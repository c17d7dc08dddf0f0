#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.hpp"

namespace forge {

// A step from a text to the text that is tokenized. Shared by threads.
struct Normalizer {
  // Changes the text in place.
  std::function<void(std::string& text, RegexScratch& scratch)> apply;
  // Whether the text's first character stays or becomes others: where it is dropped, the next piece isn't the text's
  // first one to the library, which keeps the place of each character.
  std::function<bool(std::string_view text, RegexScratch& scratch)> keeps_start = [](const auto&...) { return true; };
  // Parts of the text may be normalised apart between two letters a … z or spaces.
  bool local = false;
};

using Normalizers = std::vector<Normalizer>;

// Throws BadInput where a text of `from` bytes has become one of `to` bytes that no tokenizer in use makes of it: a few
// replacements of a file must not take all memory.
void check_growth(std::size_t from, std::size_t to);

// Whether all steps have kept the text's start.
bool normalize(const Normalizers& steps, std::string& text, RegexScratch& scratch);

Normalizer make_unicode_normalizer(const std::string& form);  // NFC, NFD, NFKC, NFKD
Normalizer make_lowercase();
Normalizer make_strip_accents();
Normalizer make_nmt();
Normalizer make_strip(bool left, bool right);
Normalizer make_prepend(const std::string& prefix);
// Replaces all occurrences of a text, or matches of a pattern.
Normalizer make_replace(const std::string& pattern, const std::string& content);
Normalizer make_replace(const Regex& pattern, const std::string& content);
// `charsmap`: the bytes as SentencePiece has them. BadInput names `where`.
Normalizer make_precompiled(std::string_view charsmap, const std::string& where);
Normalizer make_byte_level_normalizer();
struct BertOptions {
  bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};
Normalizer make_bert_normalizer(const BertOptions& options);

// All occurrences, from left to right.
void replace_all(std::string& text, std::string_view pattern, std::string_view content);

}  // namespace forge

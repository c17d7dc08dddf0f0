#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.hpp"

namespace forge {

// A step from a text to the text that is tokenized. Const, and may be shared by threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Changes the text in place.
  virtual void apply(std::string& text, RegexScratch& scratch) const = 0;
  // Whether the text's first character stays or becomes others: where it is dropped, what follows isn't the first piece
  // of its text to the library, which keeps the place of each character.
  virtual bool keeps_start(std::string_view /*text*/, RegexScratch&) const { return true; }
  // Parts of the text may be normalised apart between two letters a … z or spaces.
  virtual bool local() const { return false; }
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

// Throws BadInput where a text of `from` bytes has become one of `to` bytes that no tokenizer in use makes of it: a few
// replacements of a file must not take all memory.
void check_growth(std::size_t from, std::size_t to);

// Whether all steps have kept the text's start.
bool normalize(const Normalizers& steps, std::string& text, RegexScratch& scratch);

std::unique_ptr<Normalizer> make_unicode_normalizer(const std::string& form);  // NFC, NFD, NFKC, NFKD
std::unique_ptr<Normalizer> make_lowercase();
std::unique_ptr<Normalizer> make_strip_accents();
std::unique_ptr<Normalizer> make_nmt();
std::unique_ptr<Normalizer> make_strip(bool left, bool right);
std::unique_ptr<Normalizer> make_prepend(const std::string& text);
std::unique_ptr<Normalizer> make_replace_text(const std::string& pattern, const std::string& content);
std::unique_ptr<Normalizer> make_replace(Regex pattern, const std::string& content);
// `charsmap`: the bytes as SentencePiece has them. BadInput names `where`.
std::unique_ptr<Normalizer> make_precompiled(std::string_view charsmap, const std::string& where);
std::unique_ptr<Normalizer> make_byte_level_normalizer();
struct BertOptions {
  bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};
std::unique_ptr<Normalizer> make_bert_normalizer(const BertOptions& options);

// All occurrences, from left to right.
void replace_all(std::string& text, std::string_view pattern, std::string_view content);

}  // namespace forge

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace forge {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

// Unicode normalisation (UAX #15). Characters that the tables of the crate unicode-normalization-alignments don't know
// stay as they are.
class UnicodeNormalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form);
  void apply(std::string& text) const;

 private:
  bool inert(char32_t code) const { return code < 0x80 || (code < inert_.size() ? inert_[code] : true); }
  void append_normalised(std::string_view part, std::string& to) const;

  UnicodeForm form_;
  // Of each code point: it is its own form, and neither combines with characters before it nor moves.
  std::vector<bool> inert_;
};

}  // namespace forge

#include "tokenizer/unicode_forms.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/unicode_tables.hpp"

namespace forge {

namespace {

constexpr char32_t end_of_decompositions = 0x30000;  // none stands above

using Codes = std::vector<utf8proc_int32_t>;

bool is_unknown(char32_t code) {
  return code >= 0x300 && (has_no_form(code) || stand_in(code) != 0);
}

// The full decomposition, behind what `codes` has.
void append_decomposition(char32_t code, bool compatible, Codes& codes) {
  if (is_unknown(code)) return codes.push_back(static_cast<utf8proc_int32_t>(code));
  std::array<utf8proc_int32_t, 32> out;
  int boundary = 0;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0));
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), out.data(), out.size(), options, &boundary);
  require(count >= 0 && to_size(count) <= out.size(), "a decomposition of more than 32 characters");
  codes.insert(codes.end(), out.begin(), out.begin() + count);
}

void compose(Codes& codes) {
  const auto count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  require(count >= 0, "utf8proc_normalize_utf32");
  codes.resize(to_size(count));
}

int combining_class(utf8proc_int32_t code) {
  const int found = utf8proc_get_property(code)->combining_class;
  return found != 0 && is_unknown(static_cast<char32_t>(code)) ? 0 : found;
}

// Canonical order: combining marks by class, those of one class as they stand.
void sort_marks(Codes& codes) {
  for (auto at = codes.begin(); at != codes.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, codes.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(at, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

}  // namespace

UnicodeNormalizer::UnicodeNormalizer(UnicodeForm form) : form_(form), inert_(end_of_decompositions, true) {
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  std::vector<bool> second(end_of_decompositions, false);  // of a canonical pair
  if (composes)
    for (char32_t code = 0x80; code < end_of_decompositions; ++code) {
      const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
      const bool hangul = code >= 0xAC00 && code < 0xD7A4;
      if (property->decomp_seqindex == UINT16_MAX && !hangul) continue;
      Codes codes;
      append_decomposition(code, false, codes);
      for (std::size_t i = 1; i < codes.size(); ++i) second[to_size(codes[i])] = true;
    }
  for (char32_t code = 0x80; code < end_of_decompositions; ++code) {
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
    if (is_unknown(code)) continue;
    if (property->combining_class != 0 || second[code]) {
      inert_[code] = false;
      continue;
    }
    if (property->decomp_seqindex == UINT16_MAX && !(code >= 0xAC00 && code < 0xD7A4)) continue;
    Codes codes;
    append_decomposition(code, compatible, codes);
    if (composes) compose(codes);
    inert_[code] = codes.size() == 1 && codes[0] == static_cast<utf8proc_int32_t>(code);
  }
}

void UnicodeNormalizer::append_normalised(std::string_view part, std::string& to) const {
  const bool compatible = form_ == UnicodeForm::nfkc || form_ == UnicodeForm::nfkd;
  Codes codes;
  for (std::size_t at = 0; at < part.size();) {
    const Decoded c = decode_valid(part, at);
    append_decomposition(c.code, compatible, codes);
    at += c.bytes;
  }
  sort_marks(codes);
  if (form_ == UnicodeForm::nfc || form_ == UnicodeForm::nfkc) compose(codes);
  for (const auto code : codes) append_utf8(to, static_cast<char32_t>(code));
}

void UnicodeNormalizer::apply(std::string& changing) const {
  const std::string_view text = changing;
  std::string to;
  std::size_t done = 0, base = 0;  // what is in `to`; the last inert character's start
  bool changed = false;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_valid(text, at);
    if (inert(c.code)) {
      base = at;
      at += c.bytes;
      continue;
    }
    // From the character that it may combine with to the next that combines with nothing before it.
    std::size_t end = at + c.bytes;
    while (end < text.size()) {
      const Decoded next = decode_valid(text, end);
      if (inert(next.code)) break;
      end += next.bytes;
    }
    if (!changed) to.reserve(text.size() + text.size() / 8);
    changed = true;
    base = std::max(base, done);
    to.append(text.substr(done, base - done));
    append_normalised(text.substr(base, end - base), to);
    done = at = base = end;
  }
  if (!changed) return;
  to.append(text.substr(done));
  changing = std::move(to);
}

}  // namespace forge

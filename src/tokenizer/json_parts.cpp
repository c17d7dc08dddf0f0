#include "tokenizer/json_parts.hpp"

#include <array>

#include "config/text.hpp"
#include "core/error.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

using nlohmann::json;

namespace {

constexpr int most_depth = 8;
constexpr const char* gpt2_pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

std::string member(const std::string& place, const std::string& name) {
  return place + (place.ends_with(':') ? " " : ".") + name;
}

void check_depth(const JsonPart& part, int depth) {
  if (depth > most_depth) part.refuse("sequences nested deeper than " + std::to_string(most_depth));
}

// {"String": text} or {"Regex": pattern}.
struct Pattern {
  bool regex;
  std::string text;
};
Pattern read_pattern(const JsonPart& part) {
  const json* pattern = part.find("pattern");
  if (pattern && pattern->is_object() && pattern->size() == 1)
    for (const char* kind : {"String", "Regex"})
      if (const auto at = pattern->find(kind); at != pattern->end() && at->is_string()) {
        const std::string text = at->get<std::string>();
        if (text.empty()) part.refuse("an empty pattern");
        return {kind[0] == 'R', text};
      }
  part.refuse("pattern: legal is {\"String\": text} or {\"Regex\": pattern}");
}
Regex regex_of(const JsonPart& part, const std::string& pattern) {
  return Regex(pattern, RegexDialect::oniguruma, part.place);
}

SplitBehavior read_behavior(const JsonPart& part, const std::string& fallback) {
  static constexpr std::array names = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const std::string name = part.text("behavior", fallback);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<SplitBehavior>(i);
  part.refuse("behavior = " + shown(name) +
              "; legal: Removed | Isolated | MergedWithPrevious | MergedWithNext | Contiguous");
}

Normalizer read_replace(const JsonPart& part) {
  const Pattern pattern = read_pattern(part);
  const std::string content = part.text("content");
  return pattern.regex ? make_replace(regex_of(part, pattern.text), content) : make_replace(pattern.text, content);
}

Normalizer read_precompiled(const JsonPart& part) {
  std::string bytes;
  if (!decode_base64(part.text("precompiled_charsmap", ""), bytes)) part.refuse("precompiled_charsmap is no base64");
  return make_precompiled(bytes, part.place);
}

Normalizer read_bert(const JsonPart& part) {
  const bool lowercase = part.flag("lowercase", true);
  return make_bert_normalizer({part.flag("clean_text", true), part.flag("handle_chinese_chars", true),
                               part.flag("strip_accents", lowercase), lowercase});
}

// One character; the default of Metaspace is U+2581.
std::string read_replacement(const JsonPart& part) {
  const std::string text = part.text("replacement", "\xE2\x96\x81");
  if (text.empty() || decode_valid(text, 0).bytes != text.size())
    part.refuse("replacement = " + shown(text) + "; legal: one character");
  return text;
}

PrependScheme read_scheme(const JsonPart& part) {
  const bool prefix = part.flag("add_prefix_space", true);
  const std::string name = part.text("prepend_scheme", prefix ? "always" : "never");
  if (!prefix && name != "never")
    part.refuse("add_prefix_space = false with prepend_scheme = " + shown(name) + "; legal: never");
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  if (name == "always") return PrependScheme::always;
  part.refuse("prepend_scheme = " + shown(name) + "; legal: first | never | always");
}

void read_byte_level(const JsonPart& part, PreTokenizerSteps& to) {
  if (part.flag("add_prefix_space", true)) to.steps.push_back(make_prefix_space());
  if (part.flag("use_regex", true))
    to.steps.push_back(make_split(regex_of(part, gpt2_pattern), SplitBehavior::isolated, false));
  to.ends_in_bytes = true;
}

PreTokenizer read_split(const JsonPart& part) {
  const Pattern pattern = read_pattern(part);
  const SplitBehavior behavior = read_behavior(part, "");
  const bool invert = part.flag("invert", false);
  if (!pattern.regex) return make_split(pattern.text, behavior, invert);
  return make_split(regex_of(part, pattern.text), behavior, invert);
}

}  // namespace

void JsonPart::refuse(const std::string& why) const {
  throw BadInput(place + (place.ends_with(':') ? " " : ": ") + why);
}

const json* JsonPart::find(const char* key) const {
  if (!value.is_object()) refuse("is " + shown_json(value) + "; legal: a map");
  const auto at = value.find(key);
  return at == value.end() || at->is_null() ? nullptr : &*at;
}

std::string JsonPart::text(const char* key) const {
  const json* found = find(key);
  if (!found || !found->is_string())
    refuse(std::string(key) + (found ? " = " + shown_json(*found) : " is missing") + "; legal: text");
  return found->get<std::string>();
}

std::string JsonPart::text(const char* key, const std::string& fallback) const {
  return find(key) ? text(key) : fallback;
}

bool JsonPart::flag(const char* key, bool fallback) const {
  const json* found = find(key);
  if (!found) return fallback;
  if (!found->is_boolean()) refuse(std::string(key) + " = " + shown_json(*found) + "; legal: true | false");
  return found->get<bool>();
}

std::int64_t JsonPart::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const json* found = find(key);
  if (found && found->is_number_integer()) {
    const bool fits = !found->is_number_unsigned() || found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    if (fits && found->get<std::int64_t>() >= least && found->get<std::int64_t>() <= most)
      return found->get<std::int64_t>();
  }
  refuse(std::string(key) + (found ? " = " + shown_json(*found) : " is missing") + "; legal: integer, " +
         std::to_string(least) + " to " + std::to_string(most));
}

std::vector<JsonPart> JsonPart::list(const char* key) const {
  const json* found = find(key);
  if (!found || !found->is_array()) refuse(std::string(key) + ": legal is a list");
  std::vector<JsonPart> parts;
  for (std::size_t i = 0; i < found->size(); ++i)
    parts.push_back({(*found)[i], member(place, key) + "[" + std::to_string(i) + "]"});
  return parts;
}

void read_normalizers(const JsonPart& part, Normalizers& steps, int depth) {
  if (part.value.is_null()) return;
  check_depth(part, depth);
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& member : part.list("normalizers")) read_normalizers(member, steps, depth + 1);
    return;
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
    steps.push_back(make_unicode_normalizer(type));
  else if (type == "Lowercase")
    steps.push_back(make_lowercase());
  else if (type == "StripAccents")
    steps.push_back(make_strip_accents());
  else if (type == "Nmt")
    steps.push_back(make_nmt());
  else if (type == "Strip")
    steps.push_back(make_strip(part.flag("strip_left", true), part.flag("strip_right", true)));
  else if (type == "Prepend")
    steps.push_back(make_prepend(part.text("prepend")));
  else if (type == "Replace")
    steps.push_back(read_replace(part));
  else if (type == "Precompiled")
    steps.push_back(read_precompiled(part));
  else if (type == "BertNormalizer")
    steps.push_back(read_bert(part));
  else if (type == "ByteLevel")
    steps.push_back(make_byte_level_normalizer());
  else
    part.refuse("type = " + shown(type) +
                "; legal: Sequence | NFC | NFD | NFKC | NFKD | Lowercase | StripAccents | Nmt | Strip | Prepend | "
                "Replace | Precompiled | BertNormalizer | ByteLevel");
}

void read_pre_tokenizers(const JsonPart& part, PreTokenizerSteps& to, int depth) {
  if (part.value.is_null()) return;
  check_depth(part, depth);
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& member : part.list("pretokenizers")) read_pre_tokenizers(member, to, depth + 1);
    return;
  }
  // What follows sees the byte alphabet.
  if (to.ends_in_bytes) to.steps.push_back(make_byte_alphabet());
  to.ends_in_bytes = false;
  if (type == "ByteLevel") {
    read_byte_level(part, to);
  } else if (type == "Split") {
    to.steps.push_back(read_split(part));
  } else if (type == "Metaspace") {
    to.steps.push_back(make_metaspace(read_replacement(part), read_scheme(part), part.flag("split", true)));
  } else if (type == "Whitespace") {
    to.steps.push_back(
        make_split(Regex("\\w+|[^\\w\\s]+", RegexDialect::rust, part.place), SplitBehavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    to.steps.push_back(make_split_characters(CharacterKind::white_space, SplitBehavior::removed));
  } else if (type == "Digits") {
    to.steps.push_back(make_split_characters(CharacterKind::numeric, part.flag("individual_digits", false)
                                                                         ? SplitBehavior::isolated
                                                                         : SplitBehavior::contiguous));
  } else if (type == "Punctuation") {
    to.steps.push_back(make_split_characters(CharacterKind::punctuation, read_behavior(part, "Isolated")));
  } else if (type == "BertPreTokenizer") {
    to.steps.push_back(make_split_characters(CharacterKind::white_space, SplitBehavior::removed));
    to.steps.push_back(make_split_characters(CharacterKind::punctuation, SplitBehavior::isolated));
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = part.text("delimiter");
    if (delimiter.empty() || decode_valid(delimiter, 0).bytes != delimiter.size())
      part.refuse("delimiter = " + shown(delimiter) + "; legal: one character");
    to.steps.push_back(make_split(delimiter, SplitBehavior::removed, false));
  } else {
    part.refuse("type = " + shown(type) +
                "; legal: Sequence | ByteLevel | Split | Metaspace | Whitespace | WhitespaceSplit | Digits | "
                "Punctuation | BertPreTokenizer | CharDelimiterSplit");
  }
}

void read_decoders(const JsonPart& part, std::vector<DecoderStep>& steps, int depth) {
  if (part.value.is_null()) return;
  check_depth(part, depth);
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& member : part.list("decoders")) read_decoders(member, steps, depth + 1);
  } else if (type == "ByteLevel") {
    steps.push_back(make_byte_level_decoder());
  } else if (type == "ByteFallback") {
    steps.push_back(make_byte_fallback_decoder());
  } else if (type == "Fuse") {
    steps.push_back(make_fuse_decoder());
  } else if (type == "Replace") {
    steps.push_back(make_replace_decoder(read_replace(part)));
  } else if (type == "Strip") {
    const std::string content = part.text("content");
    if (content.empty()) part.refuse("content is empty");
    steps.push_back(make_strip_decoder(content, static_cast<std::size_t>(part.integer("start", 0, 1 << 20)),
                                       static_cast<std::size_t>(part.integer("stop", 0, 1 << 20))));
  } else if (type == "Metaspace") {
    steps.push_back(make_metaspace_decoder(read_replacement(part), read_scheme(part)));
  } else if (type == "BPEDecoder") {
    const std::string suffix = part.text("suffix", "</w>");
    if (suffix.empty()) part.refuse("suffix is empty");
    steps.push_back(make_suffix_decoder(suffix));
  } else {
    part.refuse("type = " + shown(type) +
                "; legal: Sequence | ByteLevel | ByteFallback | Fuse | Replace | Strip | Metaspace | BPEDecoder");
  }
}

bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.ends_with('=') && text.size() % 4 == 0) text.remove_suffix(text.ends_with("==") ? 2 : 1);
  if (text.size() % 4 == 1) return false;
  bytes.reserve(text.size() / 4 * 3 + 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return true;
}

}  // namespace forge

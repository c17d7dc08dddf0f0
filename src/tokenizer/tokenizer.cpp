#include "tokenizer/tokenizer.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  require(parts_.model != nullptr, "a tokenizer without a model");
  parts_.special.resize(parts_.texts.size());
}

std::int32_t Tokenizer::id_of(const std::string& text) const {
  const auto at = text.empty() ? parts_.ids.end() : parts_.ids.find(text);
  return at == parts_.ids.end() ? -1 : at->second;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> parts;
  for (const std::int32_t id : ids)
    if (id >= 0 && to_size(id) < parts_.texts.size() && !parts_.special[to_size(id)])
      parts.push_back(parts_.texts[to_size(id)]);
  RegexScratch scratch;
  for (const DecoderStep& step : parts_.decoders) step(parts, scratch);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i > 0 && parts_.spaced ? " " : "") + parts[i];
  return replace_ill_formed(text);
}

Encoder::Encoder(const Tokenizer& tokenizer)
    : parts_(tokenizer.parts()), model_(parts_.model->make_scratch()), made_(parts_.pre_tokenizers.size()) {
  for (std::size_t i = 0; i < made_.size(); ++i) emits_.push_back([this, i](TextPiece piece) { run(i + 1, piece); });
}

void Encoder::run(std::size_t step, TextPiece piece) {
  if (step == made_.size()) return parts_.model->encode(piece.text, *model_, *ids_);
  parts_.pre_tokenizers[step].split(piece, made_[step], regex_, emits_[step]);
}

void Encoder::encode_part(std::string_view part, bool first) {
  if (!parts_.normalizers.empty()) {
    text_.assign(part);
    first = forge::normalize(parts_.normalizers, text_, regex_) && first;
    part = text_;
  }
  if (parts_.normalized_tokens.empty()) {
    if (!part.empty()) run(0, {part, first});
    return;
  }
  parts_.normalized_tokens.split(part, normalized_);
  for (const auto& [begin, end, id] : normalized_) {
    if (id >= 0)
      ids_->push_back(id);
    else
      run(0, {part.substr(begin, end - begin), first && begin == 0});
  }
}

void Encoder::encode(std::string_view text, std::vector<std::int32_t>& ids) {
  ids_ = &ids;
  parts_.raw_tokens.split(text, raw_);
  for (const auto& [begin, end, id] : raw_) {
    if (id >= 0)
      ids.push_back(id);
    else
      encode_part(text.substr(begin, end - begin), begin == 0);
  }
}

bool Encoder::keeps_start(const Normalizer& step, std::string_view text) {
  return text.empty() || step.keeps_start(text, regex_);
}

void Encoder::normalize(const Normalizer& step, std::string& text) {
  step.apply(text, regex_);
}

void Encoder::encode_plain(std::string_view part, bool first, std::vector<std::int32_t>& ids) {
  ids_ = &ids;
  if (!part.empty()) run(0, {part, first});
}

std::string Encoder::whole_piece(const PreTokenizer& step, std::string_view part, bool first) {
  std::string whole, made;
  step.split({part, first}, made, regex_, [&](TextPiece piece) { whole = piece.text; });
  return whole;
}

void Encoder::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (!piece.empty()) parts_.model->encode(piece, *model_, ids);
}

bool Encoder::encode_range(std::string_view text, std::string_view seen, const Range& range,
                           std::vector<std::int32_t>& ids, std::vector<Boundary>& boundaries) {
  ids_ = &ids;
  const Regex& pattern = *parts_.pre_tokenizers.front().cutting_pattern;
  std::size_t done = range.from;
  boundaries.push_back({done, ids.size()});
  // Whether the range goes on behind the piece.
  const auto piece = [&](std::size_t end) {
    if (end > range.most_end) {
      boundaries.push_back({done, ids.size()});
      return false;
    }
    if (done == end) return true;
    run(1, {text.substr(done, end - done), done == 0});
    done = end;
    if (done < range.head_end || done >= range.tail_begin) boundaries.push_back({done, ids.size()});
    return true;
  };
  Regex::Match match;
  while (done < range.until && done < text.size() && pattern.find(regex_, seen, done, match)) {
    if (match.begin == match.end) return false;
    if (!piece(match.begin) || !piece(match.end)) return true;
  }
  // No match is left.
  if (done < range.until && done < text.size()) piece(text.size());
  return true;
}

std::string TextStream::rest(bool all) {
  // Of ids whose text is printed some stay, for the first token of a text may be written otherwise than the same later.
  constexpr std::size_t kept = 32, most = 128;
  std::string text = tokenizer_.decode(ids_);
  std::size_t end = text.size();
  const std::string broken = utf8_of(replacement_character);
  if (!all)
    while (end >= broken.size() && std::string_view(text).substr(0, end).ends_with(broken)) end -= broken.size();
  // Bytes that were a character can become several that are none, by what follows them.
  while (printed_ < end && continues_character(text[printed_])) ++printed_;
  std::string fresh = end > printed_ ? text.substr(printed_, end - printed_) : "";
  printed_ = std::max(printed_, end);
  if (ids_.size() > most && end == text.size()) {
    ids_.erase(ids_.begin(), ids_.end() - static_cast<std::ptrdiff_t>(kept));
    printed_ = tokenizer_.decode(ids_).size();
  }
  return fresh;
}

std::string TextStream::add(std::int32_t id) {
  ids_.push_back(id);
  return rest(false);
}

std::string TextStream::finish() {
  return rest(true);
}

}  // namespace forge

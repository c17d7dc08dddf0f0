#include "app/model_text.hpp"

#include <algorithm>

#include "config/byte_vocabulary.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/model_ids.hpp"
#include "tokenizer/unicode.hpp"
#include "train/job_report.hpp"

namespace forge {

ModelText::ModelText(const Deck& deck, const std::string& tokenizer, const std::string& pattern)
    : vocabulary_(deck.model.vocabulary), bytes_(has_byte_vocabulary(deck)) {
  const std::string path = tokenizer.empty() ? tokenizer_path(deck.model) : tokenizer;
  if (path.empty() && !pattern.empty())
    throw BadInput("--pattern " + pattern +
                   " without a tokenizer; legal: with --tokenizer, or with model.tokenizer of the deck");
  if (!path.empty()) tokenizer_.emplace(Tokenizer::open(path, pattern));
  if (tokenizer_) bytes_ = false;
  SpecialIds ids = model_ids(deck, this->tokenizer());
  ends_ = std::move(ids.ends);
  if (ids.begin && *ids.begin < vocabulary_) begin_ = ids.begin;
}

std::optional<std::int32_t> ModelText::before_text() const {
  if (begin_ || ends_.empty()) return begin_;
  return ends_.front();
}

std::vector<std::int32_t> ModelText::encode(const std::string& text, const std::string& option) const {
  std::vector<std::int32_t> ids;
  if (tokenizer_) {
    Encoder(*tokenizer_).encode(replace_ill_formed(text), ids);
  } else if (bytes_) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  } else {
    throw BadInput(option + ": this model has model.vocabulary = " + std::to_string(vocabulary_) +
                   ", whose tokens are not bytes, and no tokenizer is known; legal: model.tokenizer or --tokenizer "
                   "with a directory or a file, the prompt as --tokens, or a byte vocabulary (" +
                   byte_vocabulary_text + ")");
  }
  for (const std::int32_t id : ids)
    if (id >= vocabulary_)
      throw BadInput(option + ": " + (tokenizer_ ? tokenizer_->name() : "its bytes") + " give the id " +
                     std::to_string(id) + ", model.vocabulary is " + std::to_string(vocabulary_) +
                     "; legal: the model's own tokenizer");
  return ids;
}

std::int64_t ModelText::bytes_of(std::int32_t id) const {
  if (!tokenizer_) return id < byte_vocabulary ? 1 : 0;
  const TokenizerParts& parts = tokenizer_->parts();
  if (id < 0 || to_size(id) >= parts.texts.size() || parts.special[to_size(id)]) return 0;
  // Between two others, so that nothing is stripped of it.
  std::vector<std::string> around{"a", parts.texts[to_size(id)], "a"};
  RegexScratch scratch;
  for (const DecoderStep& step : parts.decoders) step(around, scratch);
  std::size_t bytes = 0;
  for (const std::string& part : around) bytes += part.size();
  // A byte alone is shown as U+FFFD.
  if (byte_of_token(parts.texts[to_size(id)]) >= 0) return 1;
  return static_cast<std::int64_t>(bytes) - 2;
}

std::string ModelText::name_of(std::int32_t id) const {
  const std::string number = "id " + std::to_string(id);
  const bool named = tokenizer_ && id >= 0 && id < tokenizer_->vocabulary();
  return named ? printable_text(replace_ill_formed(tokenizer_->parts().texts[to_size(id)])) + " (" + number + ")"
               : number;
}

TextPrinter::TextPrinter(const ModelText& text) : text_(text) {
  if (text.tokenizer_) stream_.emplace(*text.tokenizer_);
}

std::string TextPrinter::add(std::int32_t id) {
  const bool ends = std::find(text_.ends_.begin(), text_.ends_.end(), id) != text_.ends_.end();
  if (!stream_) return ends || id >= byte_vocabulary ? finish() + "\n" : add_byte(static_cast<char>(id));
  if (!ends || id >= text_.tokenizer_->vocabulary()) return printable_text(stream_->add(id));
  const std::string own = replace_ill_formed(text_.tokenizer_->parts().texts[to_size(id)]);
  std::string text = printable_text(stream_->finish() + own);
  stream_.emplace(*text_.tokenizer_);
  return text;
}

// Bytes that may begin a character wait for those that follow.
std::string TextPrinter::add_byte(char byte) {
  bytes_ += byte;
  std::string text;
  while (!bytes_.empty()) {
    const auto [valid, broken] = valid_prefix(bytes_);
    if (valid == 0 && broken == bytes_.size()) break;
    const std::size_t certain = valid > 0 ? valid : broken;
    text += printable_text(replace_ill_formed(bytes_.substr(0, certain)));
    bytes_.erase(0, certain);
  }
  return text;
}

std::string TextPrinter::finish() {
  if (stream_) return printable_text(stream_->finish());
  return printable_text(replace_ill_formed(std::exchange(bytes_, "")));
}

TextBytes::TextBytes(const ModelText& text) {
  if (text.tokenizer_) stream_.emplace(*text.tokenizer_);
}

std::string TextBytes::add(std::int32_t id) {
  if (stream_) return stream_->add(id);
  return id < byte_vocabulary ? std::string(1, static_cast<char>(id)) : "";
}

std::string StopTexts::add(const std::string& text) {
  waiting_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& stop : texts_)
    if (const std::size_t at = waiting_.find(stop); at < first) {
      first = at;
      found_ = stop;
    }
  if (first != std::string::npos) {
    waiting_.resize(first);
    return std::exchange(waiting_, "");
  }
  std::size_t kept = 0;  // bytes at the end that may begin a stop
  for (const std::string& stop : texts_)
    for (std::size_t n = std::min(stop.size() - 1, waiting_.size()); n > kept; --n)
      if (waiting_.ends_with(stop.substr(0, n))) kept = n;
  std::string certain = waiting_.substr(0, waiting_.size() - kept);
  waiting_.erase(0, certain.size());
  return certain;
}

std::string printable_text(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded c = decode_valid(text, at);
    const bool control = (c.code < 0x20 && c.code != '\n' && c.code != '\t') || (c.code >= 0x7F && c.code < 0xA0);
    if (control)
      out += '?';
    else
      out.append(text, at, c.bytes);
    at += c.bytes;
  }
  return out;
}

}  // namespace forge

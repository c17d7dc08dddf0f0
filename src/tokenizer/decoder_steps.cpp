#include "tokenizer/decoder_steps.hpp"

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

class ByteLevelDecoder : public DecoderStep {
 public:
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    std::string bytes;
    for (const std::string& part : parts) bytes += from_byte_alphabet(part).value_or(part);
    parts.assign(1, std::move(bytes));
  }
};

class ByteFallbackDecoder : public DecoderStep {
 public:
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_valid_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), utf8_of(replacement_character));
      bytes.clear();
    };
    for (std::string& part : parts) {
      if (const int byte = byte_of_token(part); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(part));
    }
    flush();
    parts = std::move(out);
  }
};

class FuseDecoder : public DecoderStep {
 public:
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    std::string text;
    for (const std::string& part : parts) text += part;
    parts.assign(1, std::move(text));
  }
};

class ReplaceDecoder : public DecoderStep {
 public:
  explicit ReplaceDecoder(std::unique_ptr<Normalizer> replace) : replace_(std::move(replace)) {}
  void apply(std::vector<std::string>& parts, RegexScratch& scratch) const override {
    for (std::string& part : parts) replace_->apply(part, scratch);
  }

 private:
  std::unique_ptr<Normalizer> replace_;
};

class StripDecoder : public DecoderStep {
 public:
  StripDecoder(std::string content, std::size_t start, std::size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    for (std::string& part : parts) {
      for (std::size_t i = 0; i < start_ && part.starts_with(content_); ++i) part.erase(0, content_.size());
      for (std::size_t i = 0; i < stop_ && part.ends_with(content_); ++i) part.erase(part.size() - content_.size());
    }
  }

 private:
  std::string content_;
  std::size_t start_, stop_;
};

class MetaspaceDecoder : public DecoderStep {
 public:
  MetaspaceDecoder(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    for (std::size_t i = 0; i < parts.size(); ++i)
      replace_all(parts[i], replacement_, i == 0 && scheme_ != PrependScheme::never ? "" : " ");
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

class SuffixDecoder : public DecoderStep {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    for (std::size_t i = 0; i < parts.size(); ++i) replace_all(parts[i], suffix_, i + 1 == parts.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

// SentencePiece's own: bytes become what characters they make, each other byte U+FFFD; a piece with which the text
// begins loses the space that stands for its begin; the unknown piece is written as it is.
class SentencePieceDecoder : public DecoderStep {
 public:
  SentencePieceDecoder(std::string unknown, bool strips, bool strips_all)
      : unknown_(std::move(unknown)), strips_(strips), strips_all_(strips_all) {}
  void apply(std::vector<std::string>& parts, RegexScratch&) const override {
    std::string text, bytes;
    bool stripped = false;
    for (const std::string& part : parts) {
      if (const int byte = byte_of_token(part); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush(bytes, text);
      if (part == unknown_) {
        text += unknown_;
        continue;
      }
      std::string_view rest = part;
      const bool strips = strips_ && text.empty() && !stripped && rest.starts_with(space);
      if (strips) rest.remove_prefix(space.size());
      stripped = stripped || (strips && !strips_all_);
      std::string piece(rest);
      replace_all(piece, space, " ");
      text += piece;
    }
    flush(bytes, text);
    parts.assign(1, std::move(text));
  }

 private:
  static constexpr std::string_view space = "\xE2\x96\x81";
  static void flush(std::string& bytes, std::string& text) {
    for (std::size_t at = 0; at < bytes.size();) {
      std::size_t length = 1;
      while (length <= 4 && at + length <= bytes.size() && !is_valid_utf8(std::string_view(bytes).substr(at, length)))
        ++length;
      const bool good = length <= 4 && at + length <= bytes.size();
      text += good ? bytes.substr(at, length) : utf8_of(replacement_character);
      at += good ? length : 1;
    }
    bytes.clear();
  }
  std::string unknown_;
  bool strips_, strips_all_;
};

}  // namespace

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    byte = 16 * byte + digit;
  }
  return byte;
}

std::unique_ptr<DecoderStep> make_byte_level_decoder() {
  return std::make_unique<ByteLevelDecoder>();
}
std::unique_ptr<DecoderStep> make_byte_fallback_decoder() {
  return std::make_unique<ByteFallbackDecoder>();
}
std::unique_ptr<DecoderStep> make_fuse_decoder() {
  return std::make_unique<FuseDecoder>();
}
std::unique_ptr<DecoderStep> make_replace_decoder(const std::string& text, const std::string& content) {
  return std::make_unique<ReplaceDecoder>(make_replace_text(text, content));
}
std::unique_ptr<DecoderStep> make_replace_decoder(Regex pattern, const std::string& content) {
  return std::make_unique<ReplaceDecoder>(make_replace(std::move(pattern), content));
}
std::unique_ptr<DecoderStep> make_strip_decoder(const std::string& content, std::size_t start, std::size_t stop) {
  return std::make_unique<StripDecoder>(content, start, stop);
}
std::unique_ptr<DecoderStep> make_metaspace_decoder(const std::string& replacement, PrependScheme scheme) {
  return std::make_unique<MetaspaceDecoder>(replacement, scheme);
}
std::unique_ptr<DecoderStep> make_suffix_decoder(const std::string& suffix) {
  return std::make_unique<SuffixDecoder>(suffix);
}
std::unique_ptr<DecoderStep> make_sentencepiece_decoder(const std::string& unknown, bool strips, bool strips_all) {
  return std::make_unique<SentencePieceDecoder>(unknown, strips, strips_all);
}

}  // namespace forge

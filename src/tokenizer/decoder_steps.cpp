#include "tokenizer/decoder_steps.hpp"

#include <charconv>
#include <system_error>

#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  return error == std::errc() && end == text.data() + 5 ? static_cast<int>(byte) : -1;
}

DecoderStep make_byte_level_decoder() {
  return [](std::vector<std::string>& parts, RegexScratch&) {
    std::string bytes;
    for (const std::string& part : parts) bytes += from_byte_alphabet(part).value_or(part);
    parts.assign(1, std::move(bytes));
  };
}

DecoderStep make_byte_fallback_decoder() {
  return [](std::vector<std::string>& parts, RegexScratch&) {
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
  };
}

DecoderStep make_fuse_decoder() {
  return [](std::vector<std::string>& parts, RegexScratch&) {
    std::string text;
    for (const std::string& part : parts) text += part;
    parts.assign(1, std::move(text));
  };
}

DecoderStep make_replace_decoder(const Normalizer& replace) {
  return [replace](std::vector<std::string>& parts, RegexScratch& scratch) {
    for (std::string& part : parts) replace.apply(part, scratch);
  };
}

DecoderStep make_strip_decoder(const std::string& content, std::size_t start, std::size_t stop) {
  return [=](std::vector<std::string>& parts, RegexScratch&) {
    for (std::string& part : parts) {
      for (std::size_t i = 0; i < start && part.starts_with(content); ++i) part.erase(0, content.size());
      for (std::size_t i = 0; i < stop && part.ends_with(content); ++i) part.erase(part.size() - content.size());
    }
  };
}

DecoderStep make_metaspace_decoder(const std::string& replacement, PrependScheme scheme) {
  return [=](std::vector<std::string>& parts, RegexScratch&) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      replace_all(parts[i], replacement, i == 0 && scheme != PrependScheme::never ? "" : " ");
  };
}

DecoderStep make_suffix_decoder(const std::string& suffix) {
  return [suffix](std::vector<std::string>& parts, RegexScratch&) {
    for (std::size_t i = 0; i < parts.size(); ++i) replace_all(parts[i], suffix, i + 1 == parts.size() ? "" : " ");
  };
}

namespace {

constexpr std::string_view space = "\xE2\x96\x81";

// What characters the bytes make, each other byte U+FFFD.
void flush(std::string& bytes, std::string& text) {
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

}  // namespace

// A piece with which the text begins loses the space that stands for its begin; the unknown piece is written as it is.
DecoderStep make_sentencepiece_decoder(const std::string& unknown, bool strips, bool strips_all) {
  return [=](std::vector<std::string>& parts, RegexScratch&) {
    std::string text, bytes;
    bool stripped = false;
    for (const std::string& part : parts) {
      if (const int byte = byte_of_token(part); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush(bytes, text);
      if (part == unknown) {
        text += unknown;
        continue;
      }
      std::string piece = part;
      const bool begins = strips && text.empty() && !stripped && piece.starts_with(space);
      if (begins) piece.erase(0, space.size());
      stripped = stripped || (begins && !strips_all);
      replace_all(piece, space, " ");
      text += piece;
    }
    flush(bytes, text);
    parts.assign(1, std::move(text));
  };
}

}  // namespace forge

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/regex.hpp"

namespace forge {

// A step from the texts of tokens to text: each changes the list of parts that the next one gets. Const, and shared.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void apply(std::vector<std::string>& parts, RegexScratch& scratch) const = 0;
};

std::unique_ptr<DecoderStep> make_byte_level_decoder();
// "<0x41>" is a byte; a run of them that is no UTF-8 becomes U+FFFD, one for each.
std::unique_ptr<DecoderStep> make_byte_fallback_decoder();
std::unique_ptr<DecoderStep> make_fuse_decoder();
std::unique_ptr<DecoderStep> make_replace_decoder(const std::string& text, const std::string& content);
std::unique_ptr<DecoderStep> make_replace_decoder(Regex pattern, const std::string& content);
// Up to `start` times `content` at a part's start, up to `stop` times at its end.
std::unique_ptr<DecoderStep> make_strip_decoder(const std::string& content, std::size_t start, std::size_t stop);
std::unique_ptr<DecoderStep> make_metaspace_decoder(const std::string& replacement, PrependScheme scheme);
// `suffix` at a word's end becomes a space, but in the last part.
std::unique_ptr<DecoderStep> make_suffix_decoder(const std::string& suffix);
// All of a SentencePiece model. `unknown`: what its unknown piece is written as. `strips`: the space that begins a
// text's first piece; `strips_all`: of all pieces until the text has begun.
std::unique_ptr<DecoderStep> make_sentencepiece_decoder(const std::string& unknown, bool strips, bool strips_all);

// The byte that "<0x41>" names; -1: it is another text.
int byte_of_token(std::string_view text);

}  // namespace forge

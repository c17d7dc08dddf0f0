#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/regex.hpp"

namespace forge {

// A step from the texts of tokens to text: each changes the list of parts that the next one gets. Shared by threads.
using DecoderStep = std::function<void(std::vector<std::string>& parts, RegexScratch& scratch)>;

DecoderStep make_byte_level_decoder();
// "<0x41>" is a byte; a run of them that is no UTF-8 becomes U+FFFD, one for each.
DecoderStep make_byte_fallback_decoder();
DecoderStep make_fuse_decoder();
// make_replace() of each part.
DecoderStep make_replace_decoder(const Normalizer& replace);
// Up to `start` times `content` at a part's start, up to `stop` times at its end.
DecoderStep make_strip_decoder(const std::string& content, std::size_t start, std::size_t stop);
DecoderStep make_metaspace_decoder(const std::string& replacement, PrependScheme scheme);
// `suffix` at a word's end becomes a space, but in the last part.
DecoderStep make_suffix_decoder(const std::string& suffix);
// All of a SentencePiece model. `unknown`: the text of its unknown piece. `strips`: the space that begins a text's
// first piece; `strips_all`: of all pieces until the text has begun.
DecoderStep make_sentencepiece_decoder(const std::string& unknown, bool strips, bool strips_all);

// The byte that "<0x41>" names; -1: it is another text.
int byte_of_token(std::string_view text);

}  // namespace forge

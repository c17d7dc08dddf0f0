#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/decoder_steps.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/pre_tokenizer.hpp"

namespace forge {

// The largest vocabulary that is read.
inline constexpr std::int64_t most_token_ids = std::int64_t{1} << 24;
// One more than the largest id that a file with so many tokens may name: a few tokens must not cost much memory.
constexpr std::int64_t most_ids_of(std::size_t tokens) {
  const std::int64_t few = std::int64_t{1} << 20, many = 8 * static_cast<std::int64_t>(tokens);
  return many < few ? few : many < most_token_ids ? many : most_token_ids;
}

// Names of special tokens (eos_token) and their texts.
using SpecialNames = std::vector<std::pair<std::string, std::string>>;

// The parts of a tokenizer file, in the order in which a text passes them.
struct TokenizerParts {
  AddedTokenFinder raw_tokens;  // added tokens that are looked for in the text as it is
  Normalizers normalizers;
  AddedTokenFinder normalized_tokens;  // those that are looked for in the normalised text
  std::vector<PreTokenizer> pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  bool spaced = false;  // decoding puts a space between tokens
  std::vector<DecoderStep> decoders;
  std::vector<std::string> texts;  // of each id; "": none
  std::vector<bool> special;       // of each id: says nothing to a reader
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<AddedToken> added;        // in the order in which they got their ids
  std::int64_t model_tokens = 0;        // of the model's vocabulary
  bool splits_special = false;          // special tokens are not looked for
  bool prefixed_parts = false;          // each part between added tokens is normalised as a text of its own
  SpecialNames own_specials;            // that the main file names
  std::vector<AddedToken> own_further;  // of a SentencePiece model: control and user-defined pieces
  std::string document_begin;           // the text of the token that begins a document; "": the file names none
  std::string document_end;             // of the token that ends one
  std::string name;                     // "llama/tokenizer.json"
  std::uint64_t digest = 0;             // of its file, to tell it from another one
};

// A tokenizer: const, and shared by threads; each has an Encoder of its own.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);
  // `path` is a tokenizer.json, a SentencePiece model or a tiktoken file, or a directory with one of them; a tiktoken
  // file has no pattern: `pattern` is the name of a known one or a file with one. BadInput: no such file, or a part of
  // it is not available, and named.
  static Tokenizer open(const std::string& path, const std::string& pattern = "");

  // One more than the largest id.
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(parts_.texts.size()); }
  // The id of a token by its text; -1: there is none.
  std::int32_t id_of(const std::string& text) const;
  // The tokens that begin and end a document: tokenizer_config.json's or the model's own; -1: none is named.
  std::int32_t document_begin() const { return id_of(parts_.document_begin); }
  std::int32_t document_end() const { return id_of(parts_.document_end); }
  const TokenizerParts& parts() const { return parts_; }
  const std::string& name() const { return parts_.name; }
  std::uint64_t digest() const { return parts_.digest; }

  // The text that ids stand for, valid UTF-8, without special tokens.
  std::string decode(std::span<const std::int32_t> ids) const;

 private:
  TokenizerParts parts_;
};

// Texts to ids, for one thread.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Appends the ids of a whole text, which is valid UTF-8.
  void encode(std::string_view text, std::vector<std::int32_t>& ids);

  // The steps of encode, for who deals parts of one text out to threads. Of a part without raw tokens, one step:
  bool keeps_start(const Normalizer& step, std::string_view text);
  void normalize(const Normalizer& step, std::string& text);
  // Ids of a normalised part without added tokens.
  void encode_plain(std::string_view part, bool first, std::vector<std::int32_t>& ids);
  // The one piece that a step which keeps_whole makes of a part.
  std::string whole_piece(const PreTokenizer& step, std::string_view part, bool first);
  // Ids of a piece, or of a part of one between its model's cuts.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids);
  // A place where one piece ends and the next begins, and the ids that stand before it.
  struct Boundary {
    std::size_t at, ids;
  };
  // Where the first step cuts by a pattern that looks at nothing before a match: the pieces from `from` on, to the
  // first boundary at or behind `until`, or the text's end. Boundaries before head_end and from tail_begin on are
  // noted. False: the pattern matches nothing somewhere; `ids` is of no use.
  struct Range {
    std::size_t from, head_end, tail_begin, until;
    std::size_t most_end;  // a piece that ends behind it is left out, and all later ones: a boundary stands before
  };
  // `seen`: the text with stand-ins.
  bool encode_range(std::string_view text, std::string_view seen, const Range& range, std::vector<std::int32_t>& ids,
                    std::vector<Boundary>& boundaries);

 private:
  void encode_part(std::string_view part, bool first);
  void run(std::size_t step, TextPiece piece);

  const TokenizerParts& parts_;
  RegexScratch regex_;
  std::unique_ptr<ModelScratch> model_;
  std::vector<std::string> made_;  // by each step of a piece
  std::vector<PreTokenizer::Emit> emits_;
  std::vector<AddedTokenFinder::Part> raw_, normalized_;
  std::string text_;
  std::vector<std::int32_t>* ids_ = nullptr;
};

// Ids to text as they come: the part that may still change waits.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // The text that is certain now, behind the text returned before.
  std::string add(std::int32_t id);
  // The rest of the text.
  std::string finish();

 private:
  std::string rest(bool all);
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // since some that are printed
  std::size_t printed_ = 0;        // bytes of their text
};

}  // namespace forge

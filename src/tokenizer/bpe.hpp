#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/byte_trie.hpp"
#include "tokenizer/flat_map.hpp"
#include "tokenizer/model.hpp"

namespace forge {

// Texts of tokens and their ids, both ways.
class TokenTable {
 public:
  static constexpr std::int32_t none = -1;

  // False, and nothing changed, where the text is there.
  bool add(std::string text, std::int32_t id) {
    if (ids_.contains(text)) return false;
    texts_.push_back(std::move(text));
    ids_.emplace(texts_.back(), id);
    return true;
  }
  std::int32_t find(std::string_view text) const {
    const auto at = ids_.find(text);
    return at == ids_.end() ? none : at->second;
  }
  std::size_t size() const { return ids_.size(); }
  auto begin() const { return ids_.begin(); }
  auto end() const { return ids_.end(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

struct BpeOptions {
  bool bytes = false;          // the units that merge are bytes; else characters
  bool ignore_merges = false;  // a piece that is a token is that token
  bool byte_fallback = false;  // an unknown character becomes its bytes' tokens, where all of them exist
  bool fuse_unknown = false;   // neighbouring unknown characters become one token
  std::int32_t unknown = -1;   // its id; -1: unknown characters are left out
  std::string lacking = {};    // a message: unknown characters are BadInput, for their token isn't in the vocabulary
  std::string prefix, suffix;  // of a character that isn't the first, or that is the last, of its piece
  // Ids from here on are no tokens but characters that only merging makes known (SentencePiece).
  std::int32_t first_virtual = INT32_MAX;
};

struct BpeMerge {
  std::int32_t left, right, result;
  std::uint32_t rank;  // the lowest merges first; ties go to the left
};

// Byte pair encoding (Sennrich et al. 2016) by ranked merges, O(n log n) in a piece's length.
class Bpe : public TokenModel {
 public:
  // `vocabulary`: the texts of all tokens that a piece may have, raw bytes for a byte-level model; a merge's result is
  // the text of left and right together. `byte_tokens`: ids for byte_fallback, -1: none. `frozen`: texts that are one
  // unit each and never merge (SentencePiece's user-defined symbols).
  Bpe(TokenTable vocabulary, const std::vector<BpeMerge>& merges, const std::array<std::int32_t, 256>& byte_tokens,
      BpeOptions options, const std::vector<std::string>& frozen = {});

  // Merges by the rank of their results (tiktoken, SentencePiece): of each token, every cut into two known texts.
  // `ranks`: of each id, or -1 for a text that no merge makes. Characters of tokens that are no tokens themselves get
  // ids from `next_id` on, which stand for unknown text.
  static std::vector<BpeMerge> merges_of_ranks(TokenTable& vocabulary, const std::vector<std::int64_t>& ranks,
                                               bool bytes, std::int32_t next_id);

  std::unique_ptr<ModelScratch> make_scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<std::int32_t>& ids) const override;
  std::size_t cut_behind(std::string_view piece, std::size_t from) const override;

 private:
  struct Scratch;
  struct Found {
    std::uint32_t rank;
    std::int32_t result;
  };
  void add_joint(std::string_view text);
  bool joins(std::uint64_t left, std::uint64_t right) const;
  const Found* merge_of(std::int32_t left, std::int32_t right) const {
    return merges_.find(static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                        static_cast<std::uint32_t>(right));
  }
  std::int32_t id_of_character(std::string_view character, char32_t code) const;
  std::size_t part_end(std::string_view piece, std::size_t from) const;
  void encode_part(std::string_view part, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void add_units(std::string_view part, std::vector<std::int32_t>& units) const;
  void add_unknown(std::string_view character, std::int32_t& unknowns, std::vector<std::int32_t>& units) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  void append_result(const std::vector<std::int32_t>& units, std::vector<std::int32_t>& ids) const;

  TokenTable vocabulary_;
  BpeOptions options_;
  std::array<std::int32_t, 256> byte_tokens_;
  std::array<std::int32_t, 256> ascii_;  // ids of one byte: of characters below 128, or of all bytes
  FlatMap<std::int32_t> characters_;
  FlatMap<Found> merges_;
  ByteTrie frozen_;
  // Pairs of units that stand side by side in a token that merging makes. Between others a piece can be cut.
  std::vector<bool> joint_ascii_;  // left · 256 + right
  FlatMap<std::int32_t> joint_;
  bool cuts_ = true, cuts_unknown_ = false;
  std::size_t most_token_bytes_ = 0;
  std::vector<std::string> virtual_texts_;
};

}  // namespace forge

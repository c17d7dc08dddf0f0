#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/byte_trie.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/unigram_words.hpp"

namespace forge {

struct UnigramPiece {
  std::string text;
  double score = 0;
  bool user_defined = false;  // preferred to all others
  bool matches = true;        // false: no text becomes it
};

struct UnigramOptions {
  std::int32_t unknown = -1;
  bool byte_fallback = false;
  std::array<std::int32_t, 256> byte_tokens{};  // for byte_fallback; -1: none
  // SentencePiece's own arithmetic: single precision, and a text of unknown characters is never looked up.
  bool sentencepiece = false;
  double least_score = 0;  // of all pieces
};

// The unigram language model (Kudo 2018): of all ways to write a piece as tokens the one with the largest sum of
// scores, by the best path that ends at each place. Sums are made in the order and precision of the references, on
// which ties depend. Where pieces don't go over the starts of words, a word met before takes the path that it had,
// unless rounding might choose another one there (unigram_words.hpp).
class Unigram : public TokenModel {
 public:
  // `pieces`: by id. Of a text that is there twice the last id holds.
  Unigram(std::vector<UnigramPiece> pieces, UnigramOptions options);

  std::unique_ptr<ModelScratch> make_scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<std::int32_t>& ids) const override;

 private:
  struct Scratch;
  class Output;
  template <class Score, bool with_seconds = false>
  double find_path(std::string_view piece, double before, Scratch& scratch) const;
  template <class Score>
  static void read_path(std::size_t end, Scratch& scratch);
  template <class Score>
  double encode_anew(std::string_view piece, double before, Scratch& scratch, Output& output) const;
  float take_known(const UnigramWords::Entry& entry, std::string_view word, float sum, Scratch& scratch,
                   Output& output) const;
  void encode_words(std::string_view piece, Scratch& scratch, Output& output) const;
  void meet_word(std::string_view word, const WordCache::Key& key, Scratch& scratch) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;
  std::int32_t find(std::string_view text) const;

  std::vector<UnigramPiece> pieces_;
  UnigramOptions options_;
  ByteTrie trie_, all_;         // of the pieces that match; of all of them
  std::vector<double> scores_;  // by id, as sums take them
  double unknown_score_ = 0, largest_score_ = 0;
  std::size_t longest_ = 0;  // bytes of a piece that matches
  bool by_words_ = false;    // no piece goes over the start of a word
};

}  // namespace forge

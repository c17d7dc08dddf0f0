#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/byte_trie.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/word_cache.hpp"

namespace forge {

// The best paths of short words that a unigram model has met, each with the sums before a word up to which rounding
// can't choose another one. 64 bytes a place, a cache line, and as many elsewhere for the ids of long paths.
class UnigramWords {
 public:
  static constexpr std::size_t near_ids = 6, far_ids = 16, most_ids = near_ids + far_ids;

  struct alignas(64) Entry {
    std::array<std::uint64_t, 4> words{};  // zeros: none, for a length is at least 1
    float most_sum = -1;                   // the path holds behind a sum whose magnitude is at most this
    std::uint16_t count = 0;               // of ids
    bool met_once = true;                  // its path isn't known yet: most words of some texts never come again
    bool has_unknown = false;
    std::array<std::int32_t, near_ids> ids{};  // the first ones
  };
  using FarIds = std::array<std::int32_t, far_ids>;

  UnigramWords() : entries_(std::size_t{1} << WordCache::bits), far_(entries_.size()) {}
  // The place of a word, one of two; it may hold another one. A word whose path isn't known yet gives way first.
  Entry& at(const WordCache::Key& key) {
    Entry &first = entries_[key.place], &second = entries_[key.place ^ 1];
    if (key.is(first.words)) return first;
    return key.is(second.words) || !first.met_once ? second : first;
  }
  // The ids of a path behind the first ones.
  FarIds& far(const Entry& entry) { return far_[static_cast<std::size_t>(&entry - entries_.data())]; }
  // Brings both places near: the table is larger than the nearest caches.
  void prefetch(const WordCache::Key& key) const {
    __builtin_prefetch(&entries_[key.place]);
    __builtin_prefetch(&entries_[key.place ^ 1]);
  }

  // The largest magnitude of a sum before a word of n characters, none of whose scores is larger than `largest`, at
  // which the path found in double precision from 0 is the one of single precision; `gap` is the least distance, over
  // the places that the path passes, of the best sum there from the second best.
  //
  // Each addition rounds by at most u (|s| + n · largest), u = 2⁻²⁴, so the best sum at a place, and each that stands
  // for it, is off by at most e = n u (|s| + n · largest), for the largest of numbers is off by no more than they are.
  // Where gap > 2 e, the best one stays the largest. Sums beyond `lowered_beyond` would be lowered within the word.
  // A hundredth more covers the rounding of the bound and of double precision.
  static double most_sum(std::size_t characters, double largest, double gap, double lowered_beyond) {
    constexpr double unit = 1.01 / (1 << 24);
    const double n = static_cast<double>(characters), within = 1.01 * n * largest;
    const double by_rounding = gap / (2 * n * unit) - within, by_lowering = lowered_beyond - within;
    return 0.99 * (by_rounding < by_lowering ? by_rounding : by_lowering);
  }

 private:
  std::vector<Entry> entries_;
  std::vector<FarIds> far_;  // beside them
};

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
// unless rounding might choose another one there (UnigramWords).
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

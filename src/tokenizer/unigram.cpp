#include "tokenizer/unigram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr double unknown_penalty = 10;
// Of each byte behind the first, as SentencePiece 0.2.3 has it: no sum of logarithms is above.
constexpr double user_defined_score = 0.1;
// Where a sum is beyond it, all open ones are lowered by it: single precision has few digits (SentencePiece 0.2.3).
constexpr double largest_sum = 100'000;
constexpr std::size_t most_character_bytes = 4;
constexpr std::string_view space_symbol = "\xE2\x96\x81";

bool is_space_symbol(std::string_view text, std::size_t at) {
  return at + 2 < text.size() && text[at] == space_symbol[0] && text[at + 1] == space_symbol[1] &&
         text[at + 2] == space_symbol[2];
}

// The first place from `at` on that has the byte, or the text's end; eight bytes at a time.
std::size_t find_byte(std::string_view text, std::size_t at, std::uint8_t byte) {
  constexpr std::uint64_t ones = 0x0101010101010101u;
  for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    word ^= byte * ones;
    // The lowest bit that is set here stands in the first byte that is zero.
    const std::uint64_t zeros = (word - ones) & ~word & ones << 7;
    if (zeros != 0) return at + to_size(std::countr_zero(zeros)) / 8;
  }
  while (at < text.size() && static_cast<std::uint8_t>(text[at]) != byte) ++at;
  return at;
}

// Where the word from `at` ends: before a space symbol that follows another character.
std::size_t word_end(std::string_view text, std::size_t at) {
  while (is_space_symbol(text, at)) at += space_symbol.size();
  while (true) {
    at = find_byte(text, at, static_cast<std::uint8_t>(space_symbol[0]));
    if (at == text.size() || is_space_symbol(text, at)) return at;
    ++at;
  }
}

}  // namespace

struct Unigram::Scratch : ModelScratch {
  WordCache cache;
  UnigramWords words;
  template <class Score>
  struct Node {
    Score score = 0;
    std::int32_t id = -1;
    std::uint32_t bytes = 0;  // of the token that ends here; 0: none does
  };
  template <class Score>
  using Nodes = std::vector<Node<Score>>;
  std::tuple<Nodes<float>, Nodes<double>> nodes;  // one for each byte's end
  std::vector<double> seconds;                    // beside them: the second best sum
  struct Token {
    std::int32_t id;
    std::uint32_t bytes;
  };
  std::vector<Token> tokens;  // from the last to the first
};

// Takes the tokens of a piece from left to right. Unknown characters side by side are one token.
class Unigram::Output {
 public:
  Output(const Unigram& model, std::string_view piece, std::vector<std::int32_t>& ids)
      : model_(model), piece_(piece), ids_(ids) {}
  void add(std::int32_t id, std::size_t bytes) {
    at_ += bytes;
    if (id == model_.options_.unknown) {
      unknown_bytes_ += bytes;
      return;
    }
    end_unknown(at_ - bytes);
    ids_.push_back(id);
  }
  // None of them unknown.
  void add_known(std::span<const std::int32_t> ids, std::size_t bytes) {
    end_unknown(at_);
    for (const std::int32_t id : ids) ids_.push_back(id);  // a few: cheaper than a copy of a range
    at_ += bytes;
  }
  void finish() { end_unknown(at_); }

 private:
  void end_unknown(std::size_t at) {
    if (unknown_bytes_ == 0) return;
    model_.append_unknown(piece_.substr(at - unknown_bytes_, unknown_bytes_), ids_);
    unknown_bytes_ = 0;
  }

  const Unigram& model_;
  std::string_view piece_;
  std::vector<std::int32_t>& ids_;
  std::size_t at_ = 0, unknown_bytes_ = 0;
};

Unigram::Unigram(std::vector<UnigramPiece> pieces, UnigramOptions options)
    : pieces_(std::move(pieces)), options_(options) {
  const auto rounded = [&](double score) {
    return options_.sentencepiece ? static_cast<double>(static_cast<float>(score)) : score;
  };
  std::vector<std::pair<std::string_view, std::int32_t>> matching, all;
  std::vector<float> weights;
  unknown_score_ = rounded(rounded(options_.least_score) - unknown_penalty);
  largest_score_ = std::abs(unknown_score_);
  by_words_ = options_.sentencepiece;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    const UnigramPiece& piece = pieces_[id];
    all.emplace_back(piece.text, static_cast<std::int32_t>(id));
    const double bytes = static_cast<double>(piece.text.size());
    scores_.push_back(rounded(piece.user_defined ? user_defined_score * (bytes - 1) : piece.score));
    weights.push_back(static_cast<float>(scores_.back()));
    if (!piece.matches) continue;
    longest_ = std::max(longest_, piece.text.size());
    matching.push_back(all.back());
    largest_score_ = std::max(largest_score_, std::abs(scores_.back()));
    by_words_ = by_words_ && word_end(piece.text, 0) == piece.text.size();
  }
  trie_ = ByteTrie(std::move(matching));
  trie_.weigh(weights);
  all_ = ByteTrie(std::move(all));
}

std::unique_ptr<ModelScratch> Unigram::make_scratch() const {
  return std::make_unique<Scratch>();
}

std::int32_t Unigram::find(std::string_view text) const {
  std::int32_t node = 0;
  for (const char byte : text)
    if ((node = all_.step(node, static_cast<std::uint8_t>(byte))) == ByteTrie::none) return ByteTrie::none;
  return all_.value(node);
}

// Score: what a sum is rounded to. The sum at the end, of one that begins with `before`.
template <class Score, bool with_seconds>
double Unigram::find_path(std::string_view piece, double before, Scratch& scratch) const {
  auto& places = std::get<Scratch::Nodes<Score>>(scratch.nodes);
  places.assign(piece.size() + 1, {});
  auto* const nodes = places.data();
  nodes[0].score = static_cast<Score>(before);
  if (with_seconds) scratch.seconds.assign(piece.size() + 1, -std::numeric_limits<double>::infinity());
  const auto unknown_score = static_cast<Score>(unknown_score_);
  const auto offer = [&](std::size_t end, std::int32_t id, std::size_t bytes, Score score) {
    auto& node = nodes[end];
    const bool taken = node.bytes > 0;
    if constexpr (with_seconds)
      if (taken) scratch.seconds[end] = std::max(scratch.seconds[end], std::min(node.score, score));
    if (!taken || score > node.score) node = {score, id, static_cast<std::uint32_t>(bytes)};
  };
  for (std::size_t at = 0; at < piece.size();) {
    Score till_here = nodes[at].score;
    if (options_.sentencepiece && std::abs(till_here) > static_cast<Score>(largest_sum)) {
      for (std::size_t i = at; i <= std::min(piece.size(), at + std::max(longest_, most_character_bytes)); ++i)
        if (i == at || nodes[i].bytes > 0) nodes[i].score -= till_here;
      till_here = 0;
    }
    const std::size_t character = decode_valid(piece, at).bytes;
    bool has_character = false;
    std::int32_t node = 0;
    for (std::size_t i = at; i < piece.size(); ++i) {
      node = trie_.step(node, static_cast<std::uint8_t>(piece[i]));
      if (node == ByteTrie::none) break;
      const std::int32_t id = trie_.value(node);
      if (id == ByteTrie::none) continue;
      const std::size_t bytes = i + 1 - at;
      Score score;
      if constexpr (std::is_same_v<Score, float>)
        score = trie_.weight(node);
      else
        score = scores_[to_size(id)];
      offer(i + 1, id, bytes, score + till_here);
      has_character = has_character || bytes == character;
    }
    if (!has_character) offer(at + character, options_.unknown, character, unknown_score + till_here);
    at += character;
  }
  return static_cast<double>(nodes[piece.size()].score);
}

template <class Score>
void Unigram::read_path(std::size_t end, Scratch& scratch) {
  const auto& nodes = std::get<Scratch::Nodes<Score>>(scratch.nodes);
  scratch.tokens.clear();
  while (end > 0) {
    scratch.tokens.push_back({nodes[end].id, nodes[end].bytes});
    end -= nodes[end].bytes;
  }
}

// The sum behind a piece that goes out by its best path.
template <class Score>
double Unigram::encode_anew(std::string_view piece, double before, Scratch& scratch, Output& output) const {
  const double sum = find_path<Score>(piece, before, scratch);
  read_path<Score>(piece.size(), scratch);
  for (std::size_t i = scratch.tokens.size(); i-- > 0;) output.add(scratch.tokens[i].id, scratch.tokens[i].bytes);
  return sum;
}

// Puts a word into its place; where it is there already, its path, with the sums behind which that holds.
void Unigram::meet_word(std::string_view word, const WordCache::Key& key, Scratch& scratch) const {
  auto& entry = scratch.words.at(key);
  const bool again = key.is(entry.words);
  entry = {};
  entry.words = key.words;
  entry.met_once = !again;
  if (!again) return;
  find_path<double, true>(word, 0, scratch);
  read_path<double>(word.size(), scratch);
  if (scratch.tokens.size() > UnigramWords::most_ids) return;
  const auto& nodes = std::get<Scratch::Nodes<double>>(scratch.nodes);
  auto& far = scratch.words.far(entry);
  double gap = std::numeric_limits<double>::infinity();
  std::size_t at = 0, characters = 0;
  for (const char byte : word) characters += !continues_character(byte);
  for (std::size_t i = scratch.tokens.size(); i-- > 0;) {
    const auto& token = scratch.tokens[i];
    at += token.bytes;
    gap = std::min(gap, nodes[at].score - scratch.seconds[at]);
    const std::size_t place = entry.count++;
    (place < entry.ids.size() ? entry.ids[place] : far[place - entry.ids.size()]) = token.id;
    entry.has_unknown = entry.has_unknown || token.id == options_.unknown;
  }
  entry.most_sum = static_cast<float>(UnigramWords::most_sum(characters, largest_score_, gap, largest_sum));
}

// The sum behind a word whose path is known, which goes out.
float Unigram::take_known(const UnigramWords::Entry& entry, std::string_view word, float sum, Scratch& scratch,
                          Output& output) const {
  using Ids = std::span<const std::int32_t>;
  const Ids first(entry.ids.data(), std::min<std::size_t>(entry.count, entry.ids.size()));
  const Ids rest(scratch.words.far(entry).data(), entry.count - first.size());
  const auto add_score = [&](std::int32_t id) {
    sum = static_cast<float>(id == options_.unknown ? unknown_score_ : scores_[to_size(id)]) + sum;
  };
  for (const std::int32_t id : first) add_score(id);
  for (const std::int32_t id : rest) add_score(id);
  if (!entry.has_unknown) {
    output.add_known(first, word.size());
    if (!rest.empty()) output.add_known(rest, 0);
    return sum;
  }
  std::size_t at = 0;
  for (const Ids part : {first, rest})
    for (const std::int32_t id : part) {
      const std::size_t bytes =
          id == options_.unknown ? decode_valid(word, at).bytes : pieces_[to_size(id)].text.size();
      output.add(id, bytes);
      at += bytes;
    }
  return sum;
}

// A path begins anew at each word, but for the sum that it begins with.
void Unigram::encode_words(std::string_view piece, Scratch& scratch, Output& output) const {
  struct Word {
    std::string_view text;
    WordCache::Key key;
  };
  std::array<Word, 8> words;  // the one that is encoded, and some that follow it, whose places come near meanwhile
  std::size_t read_till = 0;
  const auto read = [&](Word& word) {
    word.text = piece.substr(read_till, word_end(piece, read_till) - read_till);
    if (WordCache::fits(word.text)) {
      word.key = WordCache::key_of(word.text, piece.substr(read_till));
      scratch.words.prefetch(word.key);
    }
    read_till += word.text.size();
  };
  for (Word& word : words) read(word);
  float sum = 0;
  // Behind the last word stand empty ones.
  for (std::size_t number = 0; !words[number % words.size()].text.empty(); ++number) {
    Word& place = words[number % words.size()];
    const auto [word, key] = place;
    read(place);
    if (WordCache::fits(word)) {
      const auto& entry = scratch.words.at(key);
      if (entry.met_once || !key.is(entry.words)) meet_word(word, key, scratch);
      if (std::abs(sum) <= entry.most_sum) {
        sum = take_known(entry, word, sum, scratch, output);
        continue;
      }
    }
    sum = static_cast<float>(encode_anew<float>(word, sum, scratch, output));
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (!options_.sentencepiece)
    if (const std::int32_t id = find(text); id >= 0) return ids.push_back(id);
  if (options_.byte_fallback) {
    const auto token = [&](char byte) { return options_.byte_tokens[static_cast<std::uint8_t>(byte)]; };
    if (std::all_of(text.begin(), text.end(), [&](char byte) { return token(byte) >= 0; })) {
      for (const char byte : text) ids.push_back(token(byte));
      return;
    }
  }
  if (options_.unknown < 0)
    throw BadInput("the tokenizer has no token for " + std::to_string(text.size()) +
                   " bytes of the text and none for unknown characters (unk_id)");
  ids.push_back(options_.unknown);
}

void Unigram::encode(std::string_view piece, ModelScratch& scratch_base, std::vector<std::int32_t>& ids) const {
  auto& scratch = static_cast<Scratch&>(scratch_base);
  if (piece.empty()) return;
  const bool is_short = WordCache::fits(piece);
  WordCache::Key key;
  if (is_short) {
    key = WordCache::key_of(piece);
    if (scratch.cache.find(key, ids)) return;
  }
  const std::size_t before = ids.size();
  Output output(*this, piece, ids);
  if (by_words_) {
    encode_words(piece, scratch, output);
  } else {
    options_.sentencepiece ? encode_anew<float>(piece, 0, scratch, output)
                           : encode_anew<double>(piece, 0, scratch, output);
  }
  output.finish();
  if (is_short) scratch.cache.keep(key, ids.data() + before, ids.size() - before);
}

}  // namespace forge

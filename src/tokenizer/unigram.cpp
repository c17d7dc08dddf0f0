#include "tokenizer/unigram.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/word_cache.hpp"

namespace forge {

namespace {

constexpr double unknown_penalty = 10;
// Of each byte behind the first, as SentencePiece 0.2.3 has it: no sum of logarithms is above.
constexpr double user_defined_score = 0.1;
// Where a sum is beyond it, all open ones are lowered by it: single precision has few digits (SentencePiece 0.2.3).
constexpr double largest_sum = 100'000;

}  // namespace

struct Unigram::Scratch : ModelScratch {
  WordCache cache;
  struct Node {
    double score = 0;
    std::int32_t id = -1;
    std::int64_t begin = -1;  // of the token that ends here
  };
  std::vector<Node> nodes;  // one for each byte's end
  struct Token {
    std::int32_t id;
    std::size_t begin, end;
  };
  std::vector<Token> tokens;  // from the last to the first
};

Unigram::Unigram(std::vector<UnigramPiece> pieces, UnigramOptions options)
    : pieces_(std::move(pieces)), options_(options) {
  std::vector<std::pair<std::string_view, std::int32_t>> matching, all;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    all.emplace_back(pieces_[id].text, static_cast<std::int32_t>(id));
    if (pieces_[id].matches) matching.push_back(all.back());
  }
  trie_ = ByteTrie(std::move(matching));
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

// Score: what a sum is rounded to.
template <class Score>
void Unigram::find_path(std::string_view piece, Scratch& scratch) const {
  auto& nodes = scratch.nodes;
  nodes.assign(piece.size() + 1, {});
  const Score unknown_score = static_cast<Score>(static_cast<Score>(options_.least_score) - unknown_penalty);
  std::size_t frontier = 0;  // the furthest end of a token so far
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, Score score) {
    auto& node = nodes[end];
    frontier = std::max(frontier, end);
    if (node.begin >= 0 && !(score > static_cast<Score>(node.score))) return;
    node = {static_cast<double>(score), id, static_cast<std::int64_t>(begin)};
  };
  for (std::size_t at = 0; at < piece.size();) {
    auto till_here = static_cast<Score>(nodes[at].score);
    if (options_.sentencepiece && std::abs(till_here) > static_cast<Score>(largest_sum)) {
      for (std::size_t i = at; i <= frontier; ++i)
        if (i == at || nodes[i].begin >= 0)
          nodes[i].score = static_cast<double>(static_cast<Score>(nodes[i].score) - till_here);
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
      const UnigramPiece& token = pieces_[to_size(id)];
      const std::size_t bytes = i + 1 - at;
      const auto score =
          static_cast<Score>(token.user_defined ? user_defined_score * (static_cast<double>(bytes) - 1) : token.score);
      offer(at, i + 1, id, score + till_here);
      has_character = has_character || bytes == character;
    }
    if (!has_character) offer(at, at + character, options_.unknown, unknown_score + till_here);
    at += character;
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
  options_.sentencepiece ? find_path<float>(piece, scratch) : find_path<double>(piece, scratch);
  auto& tokens = scratch.tokens;
  tokens.clear();
  for (std::size_t end = piece.size(); end > 0;) {
    const auto& node = scratch.nodes[end];
    const std::size_t begin = to_size(node.begin);
    // Unknown characters side by side are one token.
    if (node.id == options_.unknown && !tokens.empty() && tokens.back().id == options_.unknown)
      tokens.back().begin = begin;
    else
      tokens.push_back({node.id, begin, end});
    end = begin;
  }
  for (std::size_t i = tokens.size(); i-- > 0;) {
    const auto& token = tokens[i];
    if (token.id == options_.unknown)
      append_unknown(piece.substr(token.begin, token.end - token.begin), ids);
    else
      ids.push_back(token.id);
  }
  if (is_short) scratch.cache.keep(key, ids.data() + before, ids.size() - before);
}

}  // namespace forge

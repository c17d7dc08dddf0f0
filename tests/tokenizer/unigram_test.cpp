#include "tokenizer/unigram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace forge {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string space = "\xE2\x96\x81";

// Pieces of a few letters whose sums lie close to one another: quarters, and some units of single precision.
std::vector<UnigramPiece> close_pieces(std::mt19937& random) {
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  const auto score = [&] { return static_cast<float>(-2 - 0.25 * draw(12) + std::ldexp(draw(64) - 32, -16)); };
  std::map<std::string, float> drawn;
  for (const std::string& letter : {space, std::string("a"), std::string("b"), std::string("c")}) drawn[letter] = -7;
  for (int i = 0; i < 60; ++i) {
    std::string text = draw(3) == 0 ? space : "";
    for (int letters = 2 + draw(3); letters > 0; --letters) text += static_cast<char>('a' + draw(3));
    drawn[text] = score();
  }
  std::vector<UnigramPiece> pieces{{"<unk>", 0, false, false}, {"ca", 0, true, true}};
  drawn.erase("ca");
  for (const auto& [text, value] : drawn) pieces.push_back({text, value});
  return pieces;
}

// Words of a few letters, some of them unknown, some of many tokens, some too long to be kept.
std::string words_of(std::mt19937& random, int count) {
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  std::vector<std::string> words;
  for (int i = 0; i < 300; ++i) {
    std::string word = draw(20) == 0 ? space + space : space;
    const int most = draw(10) == 0 ? 24 : 9;
    for (int letters = draw(30) == 0 ? 40 : 1 + draw(most); letters > 0; --letters)
      word += static_cast<char>(draw(50) == 0 ? 'z' : 'a' + draw(3));
    words.push_back(word);
  }
  std::string text;
  for (int i = 0; i < count; ++i) text += words[static_cast<std::size_t>(draw(300))];
  return text;
}

// The best path of the whole text, place by place, in single precision.
Ids path_of(const std::vector<UnigramPiece>& pieces, float least, const std::string& text) {
  struct Place {
    float sum = 0;
    std::int32_t id = -1;
    std::size_t begin = 0;
  };
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < pieces.size(); ++id)
    if (pieces[id].matches) ids[pieces[id].text] = static_cast<std::int32_t>(id);
  std::vector<Place> places(text.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, float score) {
    const float sum = score + places[begin].sum;
    if (places[end].id < 0 || sum > places[end].sum) places[end] = {sum, id, begin};
  };
  for (std::size_t at = 0; at < text.size();) {
    if (const float sum = places[at].sum; std::abs(sum) > 100'000) {
      places[at].sum = 0;
      for (std::size_t i = at + 1; i < std::min(text.size() + 1, at + 16); ++i)
        if (places[i].id >= 0) places[i].sum -= sum;
    }
    const std::size_t character = text[at] == space[0] ? 3 : 1;
    for (std::size_t bytes = character; bytes <= 12 && at + bytes <= text.size(); ++bytes) {
      const auto found = ids.find(text.substr(at, bytes));
      if (found == ids.end()) continue;
      const UnigramPiece& piece = pieces[static_cast<std::size_t>(found->second)];
      const double symbol = 0.1 * (static_cast<double>(bytes) - 1);
      offer(at, at + bytes, found->second, static_cast<float>(piece.user_defined ? symbol : piece.score));
    }
    if (ids.find(text.substr(at, character)) == ids.end()) offer(at, at + character, 0, least - 10);
    at += character;
  }
  Ids path;
  for (std::size_t end = text.size(); end > 0; end = places[end].begin)
    if (places[end].id != 0 || path.empty() || path.back() != 0) path.push_back(places[end].id);
  return {path.rbegin(), path.rend()};
}

// Words that were met before take the path that single precision would choose behind the sum of all before them, where
// paths differ by less than what it rounds, and on both sides of the sums that are lowered.
TEST(Unigram, WordsMetBeforeTakeTheRoundedPath) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    const auto pieces = close_pieces(random);
    float least = 0;
    for (const auto& piece : pieces) least = std::min(least, static_cast<float>(piece.score));
    UnigramOptions options;
    options.sentencepiece = true;
    options.unknown = 0;
    options.least_score = least;
    const Unigram model(pieces, options);
    const auto scratch = model.make_scratch();
    for (const int count : {2000, 30'000}) {
      const std::string text = words_of(random, count);
      Ids ids;
      model.encode(text, *scratch, ids);
      ASSERT_EQ(ids, path_of(pieces, least, text)) << seed;
    }
  }
}

}  // namespace
}  // namespace forge

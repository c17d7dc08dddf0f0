#include "tokenizer/train_bpe.hpp"

#include <algorithm>
#include <queue>
#include <set>

#include "core/to_size.hpp"
#include "hf/json_input.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {

namespace {

constexpr std::int32_t first_byte = 1;  // 0 ends documents
constexpr std::size_t most_word_bytes = 256;

using Pair = std::pair<std::int32_t, std::int32_t>;

// The most frequent first, of those the lowest ids.
struct Candidate {
  std::int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

std::uint64_t key_of(Pair pair) {
  return static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
}

}  // namespace

struct BpeTrainer::State {
  std::vector<Word> words;
  std::unordered_map<std::uint64_t, std::int64_t> counts;
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> places;  // words that have, or had, the pair
  std::priority_queue<Candidate> queue;

  void add(Pair pair, std::int64_t count, std::int32_t word) {
    counts[key_of(pair)] += count;
    places[key_of(pair)].push_back(word);
  }
  // Merges a pair in a word; `changed` gets the pairs whose count is another now.
  void merge(std::int32_t place, Pair pair, std::int32_t id, std::set<Pair>& changed) {
    Word& word = words[to_size(place)];
    std::vector<std::int32_t> merged;
    bool found = false;
    for (std::size_t i = 0; i < word.ids.size(); ++i) {
      const bool here = i + 1 < word.ids.size() && word.ids[i] == pair.first && word.ids[i + 1] == pair.second;
      found = found || here;
      merged.push_back(here ? id : word.ids[i]);
      i += here;
    }
    if (!found) return;
    for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) counts[key_of({word.ids[i], word.ids[i + 1]})] -= word.count;
    for (std::size_t i = 0; i + 1 < merged.size(); ++i) {
      const Pair fresh{merged[i], merged[i + 1]};
      counts[key_of(fresh)] += word.count;
      if (fresh.first == id || fresh.second == id) places[key_of(fresh)].push_back(place);
      changed.insert(fresh);
    }
    word.ids = std::move(merged);
  }
};

BpeTrainer::BpeTrainer(const std::string& pattern)
    : pattern_(pattern), regex_(pattern, RegexDialect::oniguruma, "--pattern") {}

void BpeTrainer::add(std::string_view text) {
  std::string buffer, word;
  const std::string_view seen = with_stand_ins(text, buffer);
  std::size_t done = 0;
  // Of a run without words, the first bytes: no text of use is so long.
  const auto count = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    word.assign(text.substr(begin, std::min(end - begin, most_word_bytes)));
    ++words_[word];
  };
  Regex::Match match;
  for (RegexMatches matches(regex_, scratch_, seen); matches.next(match); done = match.end) {
    count(done, match.begin);
    count(match.begin, match.end);
  }
  count(done, text.size());
}

// Pairs that are merged, in their order, until there are so many ids or no pair is left that comes twice.
BpeTrainer::Merges BpeTrainer::merges(std::int64_t ids) const {
  State state;
  for (const auto& [text, count] : words_) {
    std::vector<std::int32_t> bytes;
    for (const char byte : text) bytes.push_back(first_byte + static_cast<std::uint8_t>(byte));
    state.words.push_back({std::move(bytes), count});
  }
  for (std::size_t w = 0; w < state.words.size(); ++w)
    for (std::size_t i = 0; i + 1 < state.words[w].ids.size(); ++i)
      state.add({state.words[w].ids[i], state.words[w].ids[i + 1]}, state.words[w].count, static_cast<std::int32_t>(w));
  for (const auto& [key, count] : state.counts)
    state.queue.push({count, {static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xFFFFFFFF)}});
  Merges merges;
  while (first_byte + 256 + static_cast<std::int64_t>(merges.size()) < ids && !state.queue.empty()) {
    const Candidate best = state.queue.top();
    state.queue.pop();
    const std::int64_t count = state.counts[key_of(best.pair)];
    if (count != best.count) {
      if (count > 1) state.queue.push({count, best.pair});
      continue;
    }
    if (count < 2) break;
    const auto id = static_cast<std::int32_t>(first_byte + 256 + static_cast<std::int32_t>(merges.size()));
    merges.push_back(best.pair);
    std::set<Pair> changed;
    std::vector<std::int32_t> places = std::move(state.places[key_of(best.pair)]);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const std::int32_t place : places) state.merge(place, best.pair, id, changed);
    for (const Pair& pair : changed)
      if (pair.first == id || pair.second == id) state.queue.push({state.counts[key_of(pair)], pair});
  }
  return merges;
}

std::string BpeTrainer::train(std::int64_t ids) {
  std::string vocab, list;
  write_vocabulary(merges(ids), vocab, list);
  return std::string("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n") +
         "  \"added_tokens\": [\n    {\"id\": 0, \"content\": \"" + trained_document_end +
         "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": "
         "true}\n  ],\n" +
         "  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n" +
         "    {\"type\": \"Split\", \"pattern\": {\"Regex\": " + nlohmann::json(pattern_).dump() +
         "}, \"behavior\": \"Isolated\", \"invert\": false},\n" +
         "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}\n  "
         "]},\n" +
         "  \"post_processor\": null,\n" +
         "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": "
         "true},\n" +
         "  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
         "\"continuing_subword_prefix\": null,\n" +
         "    \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": "
         "false,\n" +
         "    \"vocab\": {\n" + vocab + "\n    },\n    \"merges\": [\n" + list + "\n    ]\n  }\n}\n";
}

void BpeTrainer::write_vocabulary(const Merges& merges, std::string& vocab, std::string& list) const {
  std::vector<std::string> texts{trained_document_end};
  for (int byte = 0; byte < 256; ++byte) texts.push_back(utf8_of(character_of_byte(static_cast<std::uint8_t>(byte))));
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  for (const auto& [left, right] : merges) {
    list += (list.empty() ? "      [" : ",\n      [") + quoted(texts[to_size(left)]) + ", " +
            quoted(texts[to_size(right)]) + "]";
    texts.push_back(texts[to_size(left)] + texts[to_size(right)]);
  }
  for (std::size_t id = 0; id < texts.size(); ++id)
    vocab += (id ? ",\n      " : "      ") + quoted(texts[id]) + ": " + std::to_string(id);
}

}  // namespace forge

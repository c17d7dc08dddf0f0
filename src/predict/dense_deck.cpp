#include "predict/dense_deck.hpp"

#include <algorithm>

#include "config/read.hpp"
#include "core/bytes.hpp"
#include "core/parse.hpp"
#include "predict/dense_shape.hpp"
#include "predict/search_space.hpp"
#include "schedule/check_deck.hpp"

namespace forge {

std::string size_text(double parameters) {
  const bool thousands = parameters >= 0.9995e12;
  return formatted("%.3g%s", parameters / (thousands ? 1e12 : 1e9), thousands ? "T" : "B");
}

std::optional<double> size_of_word(const std::string& word) {
  const char unit = word.empty() ? ' ' : word.back();
  double number = 0;
  const bool billions = unit == 'B' || unit == 'b';
  if (!billions && unit != 'T' && unit != 't') return {};
  if (!reads_as(std::string_view(word).substr(0, word.size() - 1), number)) return {};
  return number * (billions ? 1e9 : 1e12);
}

std::string dense_deck_text(const std::string& name, double parameters, std::int64_t sequences) {
  const ModelDeck m = dense_shape(parameters);
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  return "model: {layers: " + number(m.layers) + ", width: " + number(m.width) + ", heads: " + number(m.heads) +
         ", kv_heads: " + number(m.kv_heads) + ", ffn: " + number(m.ffn) + ", vocabulary: " + number(m.vocabulary) +
         ", rope_theta: 500000, tied_embeddings: " + (m.tied_embeddings ? "true" : "false") +
         "}\ntrain: {steps: 100000, sequence_tokens: 4096, global_batch_sequences: " + number(sequences) +
         "}\noptimizer: {learning_rate: " + format_exact(dense_learning_rate(parameters)) +
         ", warmup_steps: 2000}\ndata: {files: [data/train.bin], dtype: uint32}\noutput: {directory: runs/" + name +
         "}\n";
}

Deck dense_deck(const std::string& name, double parameters, const std::vector<std::string>& settings) {
  std::vector<std::string> all = settings;
  for (const std::string& setting : plain_settings()) all.push_back(setting);
  const auto read = [&](std::int64_t sequences) {
    return read_deck(dense_deck_text(name, parameters, sequences), "the deck of --models " + name, all);
  };
  const std::int64_t tokens = read(1).train.sequence_tokens;
  Deck deck = read(std::max<std::int64_t>(1, dense_step_tokens(parameters) / std::max<std::int64_t>(1, tokens)));
  check_deck(deck, 1);
  return deck;
}

}  // namespace forge

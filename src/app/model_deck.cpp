#include "app/model_deck.hpp"

#include <algorithm>
#include <filesystem>

#include "config/read.hpp"
#include "config/text.hpp"
#include "config/write_deck.hpp"
#include "core/error.hpp"
#include "hf/config.hpp"

namespace forge {

namespace fs = std::filesystem;

std::string model_deck(const std::string& directory, int ranks) {
  constexpr std::int64_t most_tokens = 2048;
  ModelDeck model;
  model.hf = directory;
  const std::int64_t positions = read_hf_config(directory, model).max_positions;
  return "model: {hf: " + yaml_text(directory) +
         "}\ntrain: {steps: 1, global_batch_sequences: " + std::to_string(std::max(ranks, 1)) +
         ", sequence_tokens: " + std::to_string(positions > 0 ? std::min(positions, most_tokens) : most_tokens) +
         "}\nmesh: {dp_shard: -1}\noptimizer: {learning_rate: 1e-4}\noutput: {directory: " +
         yaml_text("runs/" + fs::absolute(directory).filename().string()) + "}\n";
}

void refuse_long_text(const ModelDeck& model, std::int64_t tokens) {
  if (model.rope_scaling != RopeScaling::longrope || tokens <= model.rope_original_positions) return;
  throw BadInput("a text of " + std::to_string(tokens) + " tokens with model.rope_scaling = longrope: past " +
                 "model.rope_original_positions = " + std::to_string(model.rope_original_positions) +
                 " the frequencies are others, and forge keeps keys of the first ones; legal: at most " +
                 std::to_string(model.rope_original_positions) + " tokens, prompt and text together");
}

Deck without_directory(const Deck& deck) {
  return read_deck(write_deck(deck), "the deck", {"model.hf=\"\"", "model.load_weights=false", "model.new_rows=none"},
                   Needs::training, DeckWriter::forge);
}

}  // namespace forge

#include <nlohmann/json.hpp>

#include "../config/support.hpp"
#include "hf/config.hpp"

namespace forge {
namespace {

using nlohmann::json;
using test::expect_bad_input;

// A small model of 97 ids.
ModelDeck small_with(const ModelDeck& deck) {
  const test::Directory directory;
  directory.write("config.json", json({{"model_type", "llama"},
                                       {"vocab_size", 97},
                                       {"hidden_size", 32},
                                       {"intermediate_size", 56},
                                       {"num_hidden_layers", 3},
                                       {"num_attention_heads", 4}})
                                     .dump());
  return read_hf_config(directory.path(), deck);
}

// model.new_rows: of the deck's vocabulary, which must be larger, config.json's rows are the first.
TEST(HfVocabulary, NewRowsAreBehindItsVocabulary) {
  ModelDeck deck;
  deck.vocabulary = 130, deck.given = {"vocabulary"};
  expect_bad_input([&] { small_with(deck); },
                   {"model.vocabulary = 130", "config.json says 97", "leave it out, or model.new_rows: mean | noise"});
  deck.new_rows = NewRows::mean, deck.given = {"vocabulary", "new_rows"};
  const ModelDeck model = small_with(deck);
  EXPECT_EQ(model.vocabulary, 130);
  EXPECT_EQ(model.base_vocabulary, 97);
  EXPECT_EQ(json::parse(write_hf_config(model))["vocab_size"], 130);
  for (const std::int64_t vocabulary : {96, 97}) {
    deck.vocabulary = vocabulary;
    expect_bad_input(
        [&] { small_with(deck); },
        {"model.new_rows = mean with model.vocabulary = ", "config.json says 97", "legal: new_rows: none"});
  }
  deck.vocabulary = 0;
  expect_bad_input([&] { small_with(deck); }, {"model.new_rows = mean without model.vocabulary"});
}

}  // namespace
}  // namespace forge

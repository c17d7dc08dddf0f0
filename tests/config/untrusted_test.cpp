#include <cstring>
#include <ctime>

#include "config/write_deck.hpp"
#include "hf/config.hpp"
#include "hf/safetensors.hpp"
#include "schedule/check_deck.hpp"
#include "support.hpp"

// Hostile and damaged files end in a message, never in a crash, and soon.

namespace forge {
namespace {

using test::expect_bad_input;

constexpr int mutations = 2000;

const std::string deck_text =
    "# a deck\n"
    "model:\n  hf: \"dir/x\"\n  load_weights: true\n  dropout: 0.1\n"
    "mesh: {dp_shard: -1, tp: 1}\n"
    "train:\n  steps: 10\n  global_batch_sequences: 1e1\n  sequence_tokens: 32\n  precision: fp64\n"
    "optimizer: {learning_rate: 5.0e-3, schedule: 'cosine'}\n"
    "data:\n  files:\n    - a.bin\n    - \"b \\x41.bin\"\n  dtype: uint16\n"
    "output:\n  directory: runs/x\n  sample_prompt: |\n    two\n    lines\n";

// Only BadInput may leave f.
template <class F>
bool survives(F&& f) {
  try {
    f();
    return true;
  } catch (const BadInput&) {
    return false;
  }
}

TEST(Untrusted, MutatedDecks) {
  std::mt19937_64 random(11);
  int good = 0;
  for (int i = 0; i < mutations; ++i) {
    const std::string text = test::mutated(deck_text, random);
    ASSERT_NO_THROW(good += survives([&] { read_deck(text, "deck.yaml", {}); })) << text;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, mutations);
}

TEST(Untrusted, MutatedOptions) {
  std::mt19937_64 random(12);
  for (int i = 0; i < mutations; ++i) {
    const std::string option = test::mutated("data.files=[a.bin, {b: c}, 'd']", random);
    ASSERT_NO_THROW(survives([&] { read_deck(deck_text, "deck.yaml", {option}); })) << option;
  }
}

TEST(Untrusted, AliasesNeverExpand) {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    const std::string name(1, c), before(1, static_cast<char>(c - 1));
    bomb += name + ": &" + name + " [";
    for (int i = 0; i < 9; ++i) bomb += (i ? ",*" : "*") + before;
    bomb += "]\n";
  }
  expect_bad_input([&] { read_deck(bomb, "deck.yaml", {}); },
                   {"anchors are not allowed", "aliases are not allowed", "deck.yaml:2:"});
  expect_bad_input([] { read_deck("model: &m {width: *m}\n", "deck.yaml", {}); }, {"alias"});
  expect_bad_input([] { read_deck("model: *m\n", "deck.yaml", {}); }, {"not YAML"});
}

TEST(Untrusted, DeepNesting) {
  for (const char* piece : {"[", "{a: ", "- ", "? ", "[{a: "}) {
    std::string text;
    while (text.size() < 200'000) text += piece;
    expect_bad_input([&] { read_deck(text, "deck.yaml", {}); }, {"deck.yaml"});
    expect_bad_input([&] { read_deck(deck_text, "deck.yaml", {"train.steps=" + text}); }, {"--set"});
  }
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
  };
  expect_bad_input([&] { read_deck("x: " + nested(32) + "\n", "deck.yaml", {}); }, {"deeper than 32"});
  const std::string allowed = test::message_of([&] { read_deck("x: " + nested(31) + "\n", "deck.yaml", {}); });
  EXPECT_EQ(allowed.find("deeper"), std::string::npos) << allowed;
}

TEST(Untrusted, TagsDuplicatesDocuments) {
  for (const char* tag : {"!!int 3", "!x 3", "! 3", "!!python/object:os.system x", "!<tag:x> 3"})
    expect_bad_input([&] { read_deck(deck_text + "machine: {threads: " + tag + "}\n", "deck.yaml", {}); },
                     {"tags are not allowed"});
  expect_bad_input([] { read_deck(deck_text + "mesh: {}\n", "deck.yaml", {}); },
                   {"'mesh': the key appears a second time"});
  expect_bad_input([] { read_deck(deck_text + "---\nmesh: {}\n", "deck.yaml", {}); }, {"second document"});
  expect_bad_input([] { read_deck("? [a]\n: b\n", "deck.yaml", {}); }, {"not a name"});
  expect_bad_input([] { read_deck("~: b\n", "deck.yaml", {}); }, {"not a name"});
}

TEST(Untrusted, TextsThatAreNone) {
  expect_bad_input([] { read_deck(std::string("a\0b", 3), "deck.yaml", {}); }, {"control characters"});
  expect_bad_input([] { read_deck("\xff\xfe", "deck.yaml", {}); }, {"control characters"});
  expect_bad_input([] { read_deck(std::string((1 << 20) + 1, ' '), "deck.yaml", {}); },
                   {"1048577 bytes", "at most 1048576"});
}

// The largest legal texts of each shape, most of them nothing but errors.
TEST(Untrusted, LargeTextsEndSoon) {
  for (const char* piece : {"a", " ", "a: b\n", "- a\n", "[a,", "a,", "\"", "'", "#", "&a ", "!a ", "*a ", "|", "%a\n",
                            "? a\n", ": \n", "\t", "---\n", "\n"}) {
    std::string text;
    while (text.size() + std::strlen(piece) <= (1 << 20)) text += piece;
    const std::clock_t start = std::clock();
    ASSERT_NO_THROW(survives([&] { read_deck(text, "deck.yaml", {}); })) << piece;
    // Linear work takes about a second of processor time; quadratic work would take hours.
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 60) << piece;
  }
}

TEST(Untrusted, MutatedConfigs) {
  const test::Directory directory;
  const std::string config =
      R"({"model_type": "qwen3", "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "head_dim": 8,
 "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 97, "rms_norm_eps": 1e-06, "sliding_window": null,
 "layer_types": ["full_attention", "full_attention"], "rope_parameters": {"rope_type": "yarn", "factor": 4.0,
 "rope_theta": 1000000.0, "original_max_position_embeddings": 64, "truncate": true}, "tie_word_embeddings": false})";
  std::mt19937_64 random(13);
  int good = 0;
  for (int i = 0; i < mutations; ++i) {
    const std::string text = test::mutated(config, random);
    directory.write("config.json", text);
    Deck deck;
    deck.model.hf = directory.path();
    ASSERT_NO_THROW(good += survives([&] { check_deck(deck, 1, Needs::model_only); })) << text;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, mutations);
}

// Reads every tensor of a file that opens.
bool reads(const std::string& path) {
  return survives([&] {
    const TensorFiles files = TensorFiles::open(path);
    for (const auto& name : files.names()) {
      const TensorInfo& tensor = *files.find(name);
      std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(tensor.elements(), 1000)));
      files.read(tensor, values);
    }
  });
}

TEST(Untrusted, MutatedSafetensors) {
  const test::Directory directory;
  const std::string path = directory.path() + "/x.safetensors";
  const std::vector<float> values(24, 1.5f);
  {
    SafetensorsWriter writer(path, {{"a", "F32", {2, 3}}, {"b.weight", "BF16", {4}}, {"c", "F64", {1}}},
                             {{"format", "pt"}});
    const auto bytes = std::as_bytes(std::span(values));
    writer.write("a", bytes.first(24));
    writer.write("b.weight", bytes.first(8));
    writer.write("c", bytes.first(8));
    writer.finish();
  }
  const std::string whole = test::read_file(path);
  ASSERT_TRUE(reads(path));
  std::mt19937_64 random(14);
  for (int i = 0; i < mutations; ++i) {
    directory.write("x.safetensors", test::mutated(whole, random));
    ASSERT_NO_THROW(reads(path)) << i;
  }
  // Every truncation is found, and so is every changed byte of the header's length.
  for (std::size_t n = 0; n < whole.size(); ++n) {
    directory.write("x.safetensors", whole.substr(0, n));
    ASSERT_FALSE(reads(path)) << n;
  }
  for (std::size_t at = 0; at < 8; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      directory.write("x.safetensors", changed);
      ASSERT_FALSE(reads(path)) << at << " " << bit;
    }
}

TEST(Untrusted, MutatedIndexes) {
  const test::Directory directory;
  {
    SafetensorsWriter writer(directory.path() + "/a.safetensors", {{"a", "F32", {0}}}, {});
    writer.finish();
  }
  std::mt19937_64 random(15);
  for (int i = 0; i < mutations; ++i) {
    directory.write("model.safetensors.index.json",
                    test::mutated(R"({"metadata": {"total_size": 0}, "weight_map": {"a": "a.safetensors"}})", random));
    ASSERT_NO_THROW(reads(directory.path())) << i;
  }
}

}  // namespace
}  // namespace forge

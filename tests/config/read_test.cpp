#include "config/read.hpp"

#include <cstdlib>
#include <tuple>

#include "config/fp8_recipe.hpp"
#include "config/ranges.hpp"
#include "config/schedule_name.hpp"
#include "config/write_deck.hpp"
#include "support.hpp"

namespace forge {
namespace {

using test::expect_bad_input;
using test::message_of;

const std::string minimal =
    "model: {layers: 2, width: 32, heads: 4, ffn: 64, vocabulary: 256}\n"
    "train: {steps: 10, global_batch_sequences: 4, sequence_tokens: 16}\n"
    "optimizer: {learning_rate: 1e-3}\n"
    "data: {files: [a.bin, b.npy]}\n"
    "output: {directory: runs/x}\n";

Deck read(const std::string& text, const std::vector<std::string>& options = {}) {
  return read_deck(text, "deck.yaml", options);
}
Deck with(const std::vector<std::string>& options) {
  return read(minimal, options);
}

TEST(Read, ValuesAndDefaults) {
  Deck expected;
  expected.model.layers = 2;
  expected.model.width = 32;
  expected.model.heads = 4;
  expected.model.ffn = 64;
  expected.model.vocabulary = 256;
  expected.train.steps = 10;
  expected.train.global_batch_sequences = 4;
  expected.train.sequence_tokens = 16;
  expected.optimizer.learning_rate = 1e-3;
  expected.data.files = {"a.bin", "b.npy"};
  expected.output.directory = "runs/x";
  EXPECT_EQ(test::difference(read(minimal), expected), "");
}

TEST(Read, MissingNullAndEmptyMeanDefaults) {
  const Deck plain = read(minimal);
  for (const char* section :
       {"mesh:\n", "mesh: ~\n", "mesh: {}\n", "mesh: null\n", "mesh: {tp: null, pp: }\n", "---\n"})
    EXPECT_EQ(test::difference(read(section == std::string("---\n") ? section + minimal : minimal + section), plain),
              "");
}

TEST(Read, ModelKeysThatWereGiven) {
  EXPECT_EQ(read(minimal).model.given, (std::vector<std::string>{"layers", "width", "heads", "ffn", "vocabulary"}));
}

TEST(Read, OptionsChangeMakeAndRepeat) {
  EXPECT_EQ(with({"train.steps=7"}).train.steps, 7);
  EXPECT_EQ(with({"train.steps=7", "train.steps=8"}).train.steps, 8);
  EXPECT_EQ(with({"mesh.dp_shard=3"}).mesh.dp_shard, 3);
  EXPECT_EQ(with({"data.files=[c.bin]"}).data.files, std::vector<std::string>{"c.bin"});
  EXPECT_EQ(with({"output.sample_prompt=\"a: b=c\""}).output.sample_prompt, "a: b=c");
  EXPECT_EQ(with({"train.seed=null"}).train.seed, 0u);
  EXPECT_EQ(read("", {"model.hf=dir", "train.steps=1", "train.global_batch_sequences=1", "train.sequence_tokens=1",
                      "optimizer.learning_rate=1", "data.files=[a]", "output.directory=o"})
                .model.hf,
            "dir");
}

TEST(Read, BadOptions) {
  expect_bad_input([] { with({"train.seed="}); }, {"--set train.seed", "is empty; legal: integer"});
  EXPECT_EQ(with({"model.tokenizer="}).model.tokenizer, "");
  for (const char* option : {"train=3", "a.b.c=3", "=", "."})
    expect_bad_input([&] { with({option}); }, {"--set", "legal: --set section.key=value", option});
  expect_bad_input([] { with({"steps=3"}); }, {"--set steps=3", "legal: --set train.steps=3"});
  expect_bad_input([] { with({"train.steps"}); }, {"--set train.steps", "legal: --set train.steps=value"});
  expect_bad_input([] { with({"train.steps=\"1"}); }, {"--set train.steps", "not YAML"});
  expect_bad_input([] { with({"train.steps=x"}); }, {"--set train.steps=x", "legal: integer"});
  expect_bad_input([] { with(std::vector<std::string>(1001, "train.steps=1")); }, {"1001 of them", "at most 1000"});
}

// Nothing of an option is cut.
TEST(Read, OptionsAreTakenAsTyped) {
  for (const char* text : {"x #3", "a: b", "&x",  "*x",   "!x",      "|",     "> x", "%5", "- x", " x",  "x ",    "[x]",
                           "{x}",  "@x",   "`x`", "x\ty", "\"x\" y", "'x' y", "? x", "x:", "#",   "---", "\"x #3"})
    EXPECT_EQ(with({std::string("output.sample_prompt=") + text}).output.sample_prompt, text);
  EXPECT_EQ(with({"output.directory=runs/x #3"}).output.directory, "runs/x #3");
  EXPECT_EQ(with({"output.sample_prompt='x #3'"}).output.sample_prompt, "x #3");
  EXPECT_EQ(with({"output.sample_prompt=\"a\\nb\""}).output.sample_prompt, "a\nb");
  for (const char* text : {"", "~", "null"})
    EXPECT_EQ(with({std::string("model.tokenizer=") + text}).model.tokenizer, "") << text;
  for (const char* text :
       {"%5", "5 #x", "#5", "&a 3", "!!int 3", "*a", "| 3", "1\n---\n2", "--- 3", "3 ...", "'3'", "? 3"})
    expect_bad_input([&] { with({std::string("train.seed=") + text}); }, {"--set train.seed", "legal: integer"});
  for (const char* text : {"[a.bin] #3", "[a.bin, x #3]", "[a.bin] b.bin", "[a.bin", "{a: b}", "a.bin"})
    expect_bad_input([&] { with({std::string("data.files=") + text}); }, {"--set data.files"});
  EXPECT_EQ(with({"data.files=[a.bin, 'x #3', y#4]"}).data.files, (std::vector<std::string>{"a.bin", "x #3", "y#4"}));
}

// One error for one mistake.
TEST(Read, WhatIsReportedIsNotMissingToo) {
  const auto message = [](const std::string& text) {
    return test::message_of([&] { read_deck(text, "deck.yaml", {}, Needs::training); });
  };
  const std::string rest = "train: {steps: 1, global_batch_sequences: 1, sequence_tokens: 8}\noutput: {directory: x}\n";
  const std::string model = "model: {layers: 1, width: 8, heads: 1, ffn: 8, vocabulary: 9}\n";
  for (const std::string& text :
       {model + rest + "optimizer: {lr: 1}\ndata: {files: [a]}\n",
        model + rest + "optimizer: {learning_rate: 1}\ndata: {sources: [{name: 'a b', files: [x]}]}\n",
        model + rest + "optimizer: {learning_rate: 1}\ndata: a.bin\n",
        model + rest + "optimizer: {learning_rate: [1]}\ndata: {files: [a]}\n",
        rest + "model: {hf: [x]}\noptimizer: {learning_rate: 1}\ndata: {files: [a]}\n",
        rest + "model: 7\noptimizer: {learning_rate: 1}\ndata: {files: [a]}\n"}) {
    EXPECT_EQ(message(text).find("errors"), std::string::npos) << message(text);
    EXPECT_EQ(message(text).find("is missing"), std::string::npos) << message(text);
    EXPECT_NE(message(text), "");
  }
}

TEST(Read, UnknownKeysNameTheNearest) {
  expect_bad_input([] { with({"model.layrs=3"}); },
                   {"--set model.layrs=3: model.layrs: unknown key", "nearest known key: model.layers"});
  expect_bad_input([] { read(minimal + "machine:\n  thread: 3\n"); },
                   {"deck.yaml:7:3: machine.thread: unknown key", "machine.threads"});
  expect_bad_input([] { read(minimal + "modell: {}\n"); },
                   {"deck.yaml:6:1", "'modell'", "nearest known section: model"});
  expect_bad_input([] { read(minimal + "layers: 3\n"); }, {"deck.yaml:6:1", "nearest known key: model.layers"});
  expect_bad_input([] { read(minimal + "<<: {a: 1}\n"); }, {"unknown section"});
}

// Decks of checkpoints have schedule.chunks_per_stage; a person is told the name of today.
TEST(Read, FormerNamesAreReadFromCheckpoints) {
  const auto kept = [](const std::string& keys, const std::vector<std::string>& options = {}) {
    return read_deck(minimal + "schedule: {name: interleaved, " + keys + "}\n", "deck.yaml", options, Needs::training,
                     DeckWriter::forge);
  };
  EXPECT_EQ(kept("chunks_per_stage: 4").schedule.virtual_stages, 4);
  EXPECT_EQ(write_deck(kept("chunks_per_stage: 4")).find("chunks_per_stage"), std::string::npos);
  EXPECT_EQ(kept("chunks_per_stage: 4", {"schedule.virtual_stages=5"}).schedule.virtual_stages, 5);
  const char* today = "schedule.chunks_per_stage: is schedule.virtual_stages today";
  expect_bad_input([&] { kept("virtual_stages: 5", {"schedule.chunks_per_stage=6"}); }, {"--set", today});
  expect_bad_input([&] { read(minimal + "schedule: {chunks_per_stage: 4}\n"); }, {"deck.yaml:6:", today});
  expect_bad_input([&] { kept("chunks_per_stage: 0"); }, {"schedule.virtual_stages = 0", "legal: integer, 1 to 1024"});
}

// A key that is gone is passed over in a checkpoint whose value changed nothing of what is computed; a person is told
// what there is now.
TEST(Read, GoneKeysStopNoRestartWhereTheyMeantNothing) {
  const auto with_key = [](const std::string& section, const std::string& key) {
    const std::string deck = minimal + "machine: {threads: 3}\n", begin = section + ": {";
    return std::string(deck).insert(deck.find(begin) + begin.size(), key + ", ");
  };
  const auto kept = [](const std::string& text, const std::vector<std::string>& options = {}) {
    return write_deck(read_deck(text, "deck.yaml", options, Needs::training, DeckWriter::forge));
  };
  const std::string plain = kept(minimal + "machine: {threads: 3}\n");
  for (const auto& [section, name, instead, passed] :
       std::vector<std::tuple<std::string, std::string, const char*, std::vector<std::string>>>{
           {"model", "capacity_scope", "a capacity is one of each sequence's", {"sequence"}},
           {"train", "fp8_carrier", "FORGE_FP8_CARRIER=fp64", {"bf16"}},
           {"machine", "product_algorithms", "cuBLASLt proposes first", {"\"\"", "~", "products.txt"}},
           {"machine", "dispatch_counts", "the host reads how many rows", {"host", "device"}},
           {"machine", "attention", "FORGE_ATTENTION chooses", {"automatic", "cuda_cores", "cudnn"}},
           {"machine", "grouped", "FORGE_GROUPED chooses", {"automatic", "library", "[of no version]"}},
           {"machine", "fp8_products", "cuBLASLt's of 8-bit codes", {"bf16", "tensor_cores", "cublaslt"}}})
    for (const std::string& value : passed) {
      const std::string key = section + "." + name, text = with_key(section, name + ": " + value);
      EXPECT_EQ(kept(text), plain) << text;
      expect_bad_input([&] { read(text); }, {"deck.yaml:", (key + ": is gone: ").c_str(), instead});
      expect_bad_input([&] { kept(text, {key + "=" + value}); }, {"--set", (key + ": is gone: ").c_str(), instead});
    }
  expect_bad_input([&] { kept(with_key("model", "capacity_scope: rank")); },
                   {"deck.yaml:1:", "model.capacity_scope: is gone, and this value meant something: a capacity"});
  expect_bad_input([&] { kept(with_key("train", "fp8_carrier: fp64")); },
                   {"train.fp8_carrier: is gone, and this value meant something: ", "FORGE_FP8_CARRIER=fp64"});
}

TEST(Read, CarrierOfFp8IsOfTheEnvironment) {
  const auto carrier = [](const char* word) {
    setenv("FORGE_FP8_CARRIER", word, 1);
    return with({"train.precision=fp8"}).train.fp8_carrier;
  };
  EXPECT_EQ(carrier("fp64"), Fp8Carrier::fp64);
  EXPECT_EQ(carrier("bf16"), Fp8Carrier::bf16);
  expect_bad_input([&] { carrier("fp32"); }, {"FORGE_FP8_CARRIER = ", "fp32", "legal: bf16, fp64"});
  EXPECT_EQ(carrier(""), Fp8Carrier::bf16);
  unsetenv("FORGE_FP8_CARRIER");
  EXPECT_EQ(with({"train.precision=fp8"}).train.fp8_carrier, Fp8Carrier::bf16);
}

TEST(Read, Integers) {
  const auto steps = [](const char* text) { return with({std::string("train.steps=") + text}).train.steps; };
  EXPECT_EQ(steps("12"), 12);
  EXPECT_EQ(steps("+12"), 12);
  EXPECT_EQ(steps("1e3"), 1000);
  EXPECT_EQ(steps("2.5e1"), 25);
  EXPECT_EQ(steps("4.0"), 4);
  for (const char* bad : {"1.5",
                          "1e-3",
                          "010",
                          "0x10",
                          "1_000",
                          "'3'",
                          "\"3\"",
                          "true",
                          ".inf",
                          ".nan",
                          "nan",
                          "inf",
                          "99999999999999999999",
                          "1e30",
                          "--3",
                          "+-3",
                          "3 4",
                          "[3]",
                          "{a: 3}",
                          "0",
                          "-1",
                          "2e12"})
    expect_bad_input([&] { steps(bad); }, {"train.steps", "legal: integer, 1 to"});
  EXPECT_EQ(with({"train.seed=18446744073709551615"}).train.seed, ~std::uint64_t{0});
  expect_bad_input([] { with({"train.seed=18446744073709551616"}); }, {"train.seed", "legal: integer, 0 to"});
  expect_bad_input([] { with({"train.seed=-1"}); }, {"train.seed"});
}

TEST(Read, Numbers) {
  const auto rate = [](const char* text) {
    return with({std::string("optimizer.learning_rate=") + text}).optimizer.learning_rate;
  };
  EXPECT_EQ(rate("3e-4"), 3e-4);
  EXPECT_EQ(rate("0.1"), 0.1);
  EXPECT_EQ(rate(".5"), 0.5);
  EXPECT_EQ(rate("1"), 1.0);
  for (const char* bad :
       {".inf", "-.inf", ".nan", "inf", "nan", "1e999", "1e-999", "'1'", "0x1p3", "1,5", "", "x", "-1"})
    if (*bad) expect_bad_input([&] { rate(bad); }, {"optimizer.learning_rate", "legal: number, >= 0"});
  expect_bad_input([] { with({"optimizer.beta1=1"}); }, {"optimizer.beta1 = 1", "legal: number, >= 0 and < 1"});
  expect_bad_input([] { with({"optimizer.epsilon=0"}); }, {"optimizer.epsilon = 0", "> 0"});
}

TEST(Read, Ranges) {
  using Ranges = std::vector<NumberRange>;
  const auto steps = [](const std::string& text) { return with({"output.profile=" + text}).output.profile; };
  const auto ranks = [](const std::string& text) {
    return with({"output.profile_ranks=" + text}).output.profile_ranks;
  };
  EXPECT_EQ(steps("10"), (Ranges{{10, 10}}));
  EXPECT_EQ(steps("10-12, 100"), (Ranges{{10, 12}, {100, 100}}));
  EXPECT_EQ(steps("[10-12, 100, '200 - 1e3']"), (Ranges{{10, 12}, {100, 100}, {200, 1000}}));
  for (const char* none : {"0", "[]", "[0]"}) EXPECT_TRUE(steps(none).empty()) << none;
  EXPECT_EQ(ranks("0"), (Ranges{{0, 0}}));
  EXPECT_EQ(ranks("0-7,64"), (Ranges{{0, 7}, {64, 64}}));
  for (const char* bad : {"12-10", "3, 3", "5-9, 9", "0-3", "-1", "a", "1-", "1,,2", "[[1]]", "{a: 1}", "1.5"})
    expect_bad_input([&] { steps(bad); }, {"output.profile", "legal: ascending numbers and ranges, as in 10-12, 100"});
  EXPECT_EQ(numbers_in({{10, 12}, {100, 100}}, 11, 100), 3);
  EXPECT_TRUE(holds({{10, 12}, {100, 100}}, 12) && !holds({{10, 12}, {100, 100}}, 13));
}

TEST(Read, TruthValues) {
  EXPECT_TRUE(with({"model.qk_norm=true"}).model.qk_norm);
  EXPECT_FALSE(with({"model.residual_scaling=false"}).model.residual_scaling);
  for (const char* bad : {"yes", "True", "1", "'true'", "on"})
    expect_bad_input([&] { with({std::string("model.qk_norm=") + bad}); }, {"model.qk_norm", "legal: true | false"});
}

TEST(Read, WordsAndLists) {
  EXPECT_EQ(with({"schedule.name=gpipe"}).schedule.name, ScheduleName::gpipe);
  expect_bad_input([] { with({"schedule.name=1f2b"}); },
                   {"schedule.name = '1f2b'", "gpipe | 1f1b | interleaved | zero_bubble | zb_v"});
  EXPECT_EQ(with({"train.precision=fp8"}).train.precision, PrecisionName::fp8);
  EXPECT_EQ(with({"train.precision=fp8", "train.fp8_recipe=delayed"}).train.fp8_recipe, Fp8Recipe::delayed);
  EXPECT_EQ(with({"model.dense_layers=[0, 3, 17]"}).model.dense_layers, (std::vector<std::int64_t>{0, 3, 17}));
  EXPECT_TRUE(with({"model.dense_layers=[]"}).model.dense_layers.empty());
  for (const char* bad : {"3", "[3, 0]", "[2, 2]", "[-1]", "[10000]", "[x]", "['1']", "[[1]]", "[1.5]"})
    expect_bad_input([&] { with({std::string("model.dense_layers=") + bad}); },
                     {"model.dense_layers", "legal: list of ascending integers, 0 to 9999"});
  expect_bad_input([] { with({"data.files=a.bin"}); }, {"data.files", "legal: list of paths", "[a.bin]"});
  expect_bad_input([] { with({"data.files=[]"}); }, {"data.files = []", "at least one"});
  expect_bad_input([] { with({"data.files=[a, [b]]"}); }, {"data.files", "a list"});
  expect_bad_input([] { with({"data.files=[a, '']"}); }, {"data.files", "empty path"});
  expect_bad_input([] { with({"data.sources=a"}); }, {"data.sources", "legal: list of {name, files"});
  expect_bad_input([] { with({"data.sources=[a]"}); }, {"data.sources [0] = 'a'", "list of {name"});
  expect_bad_input([] { with({"data.sources=[{name: a, file: [x]}]"}); },
                   {"data.sources [0].'file': unknown", "files"});
  expect_bad_input([] { with({"data.sources=[{name: a, files: x}]"}); }, {"[0].files", "list of paths"});
  expect_bad_input([] { with({"data.sources=[{name: a, files: [x], weight: -1}]"}); }, {"[0].weight = '-1'", ">= 0"});
  expect_bad_input([] { with({"data.sources=[{name: a, files: [x], weight: '1'}]"}); }, {"[0].weight", ">= 0"});
  expect_bad_input([] { with({"data.sources=[{name: a, files: [x], max_epochs: 1.5}]"}); }, {"max_epochs", "integer"});
  expect_bad_input([] { with({"data.phases=[{from_step: 0, weights: {a: 1}}]"}); }, {"from_step = '0'", "1 to"});
  expect_bad_input([] { with({"data.phases=[{from_step: 2, weights: [a]}]"}); }, {"weights", "map of names"});
  expect_bad_input([] { with({"data.phases=[{from_step: 2, weights: {a: x}}]"}); }, {"[0].weights.'a' = 'x'", ">= 0"});
  expect_bad_input([] { with({"data.phases=[{from_step: 2, sequence_tokens: x}]"}); },
                   {"[0].sequence_tokens = 'x'", "integer"});
  expect_bad_input([] { with({"data.phases=[{from_step: 2, rate: -1}]"}); }, {"[0].rate = '-1'", ">= 0"});
  expect_bad_input([] { with({"output.directory=''"}); }, {"output.directory", "legal: a path"});
  expect_bad_input([] { with({"output.directory=\"a\\0b\""}); }, {"output.directory", "control character"});
}

TEST(Read, RequiredKeys) {
  expect_bad_input([] { read(""); },
                   {"model.layers is missing", "model.width", "model.heads", "model.ffn", "model.vocabulary",
                    "or give model.hf", "train.steps is missing", "train.global_batch_sequences",
                    "train.sequence_tokens", "optimizer.learning_rate", "data.files", "output.directory"});
  EXPECT_EQ(message_of([] { read(minimal, {"model.layers=null", "model.hf=dir"}); }), "");
  expect_bad_input([] { with({"model.layers=null"}); }, {"model.layers is missing"});
  expect_bad_input([] { with({"model.layers=0"}); }, {"model.layers = 0", "legal: integer, 1 to"});
}

TEST(Read, ModelOnlyNeedsTheModelOnly) {
  EXPECT_EQ(read_deck("model: {hf: dir}", "deck.yaml", {}, Needs::model_only).model.hf, "dir");
  expect_bad_input([] { read_deck("", "deck.yaml", {}, Needs::model_only); }, {"model.layers is missing"});
  EXPECT_EQ(message_of([] { read_deck("", "deck.yaml", {}, Needs::model_only); }).find("train.steps"),
            std::string::npos);
}

// Everything that is wrong stands in one report, each with its place.
TEST(Read, OneReportForAllErrors) {
  const std::string message = message_of([] {
    read(
        "model: {layers: x, width: 010}\n"
        "train:\n"
        "  steps: 1\n"
        "  steps: 2\n"
        "  stepz: 1\n"
        "mesh: 3\n"
        "optimizer: {beta1: 2}\n",
        {"machine.threads=-1"});
  });
  for (const char* part : {"deck.yaml has 15 errors", "deck.yaml:1:17: model.layers", "deck.yaml:1:27: model.width",
                           "deck.yaml:4:3: 'steps'", "deck.yaml:5:3: train.stepz", "deck.yaml:6:1: mesh",
                           "deck.yaml:7:20: optimizer.beta1", "--set machine.threads=-1", "model.heads is missing",
                           "train.sequence_tokens is missing"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  EXPECT_EQ(test::lines_of(message), 16) << message;
}

TEST(Read, RootAndSectionsAreMaps) {
  expect_bad_input([] { read("[1]"); }, {"deck.yaml:1:1", "map of sections"});
  expect_bad_input([] { read("hello"); }, {"map of sections"});
  expect_bad_input([] { read(minimal + "mesh: [1]\n"); }, {"mesh: must be a map of keys"});
}

}  // namespace
}  // namespace forge

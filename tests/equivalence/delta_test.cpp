#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../long_run.hpp"
#include "config/fp8_recipe.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

// Layers of gated DeltaNet, on any layout that may have them.

namespace forge::test {
namespace {

std::vector<LayoutCase> delta_cases(std::uint64_t first, std::int64_t steps) {
  std::vector<LayoutCase> cases;
  for (std::uint64_t key = first; key < first + 3; ++key)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
        for (const LayoutCase& c : list)
          if (takes_delta(c.deck))
            cases.push_back({c.name, with_delta(steps > 0 ? with_training(c.deck, steps) : c.deck, cases.size())});
  return cases;
}

TEST(DeltaNet, GradientsEqualOneRank) {
  const std::vector<LayoutCase> cases = thinned(delta_cases(81, 0), 6);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_GE(cases.size(), 12u);
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

TEST(DeltaNet, TrainingEqualsOneRank) {
  constexpr std::int64_t steps = 4;
  const std::vector<LayoutCase> cases = thinned(delta_cases(85, steps), 12);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_GE(cases.size(), 5u);
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

// Products in FP8, in most of the model's layers.
TEST(DeltaNet, InFp8EqualsOneRank) {
  std::vector<LayoutCase> cases;
  constexpr std::array recipes{Fp8Recipe::current, Fp8Recipe::row, Fp8Recipe::delayed};
  for (LayoutCase& c : delta_cases(87, 4)) {
    TrainDeck& t = c.deck.train;
    t.precision = PrecisionName::fp8;
    t.fp8_recipe = recipes[cases.size() % recipes.size()];
    t.fp8_carrier = Fp8Carrier::fp64;
    t.fp8_experts = c.deck.model.experts > 0 && cases.size() % 2 == 0;
    t.fp8_gather = true;  // of codes, where ZeRO 3 gathers weights
    if (!illegality(c.deck).empty()) t.fp8_gather = false;
    if (illegality(c.deck).empty()) cases.push_back(c);
  }
  EXPECT_GE(cases.size(), 150u);
  cases = thinned(cases, 24);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 4, 1e-9); };
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

// Products, row kernels, bytes and memory are the plan's, in FP8 and with adapters, too.
TEST(DeltaNet, RunsAsListed) {
  std::size_t runs = 0;
  for (const PrecisionName precision : {PrecisionName::bf16, PrecisionName::fp8})
    for (const bool adapters : {false, true})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Deck deck = test_models()[2].deck;
        deck.mesh = {.pp = runs % 2 == 0 ? 2 : 1, .cp = runs % 2 == 0 ? 1 : 2, .tp = 2};
        deck.train.recompute = recompute;
        deck.train.precision = precision;
        deck.data.document_end_token = -1;
        if (precision == PrecisionName::fp8) deck.train.fp8_recipe = adapters ? Fp8Recipe::delayed : Fp8Recipe::current;
        if (adapters) {
          deck.model.adapter.name = AdapterName::lora;
          deck.model.adapter.rank = 3;
          deck.model.adapter.dropout = 0.2;
        }
        deck = with_delta(deck, 1);
        ASSERT_EQ(illegality(deck), "") << text_of(deck);
        EXPECT_EQ(run_threads(deck, {.alike = true}).problem, "") << text_of(deck);
        ++runs;
      }
}

// Layers of multi-token prediction have attention, whatever the last layer has.
TEST(DeltaNet, MultiTokenPredictionEqualsOneRank) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {1, 2, 4, 6, 8})
    for (const LayoutCase& c : drawn_mtp_layouts(ranks, 1))
      if (takes_delta(c.deck)) cases.push_back({c.name, with_delta(c.deck, cases.size())});
  cases = thinned(cases, 2);
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_GE(cases.size(), 8u);
  EXPECT_EQ(failures_of(cases, cases.size(), check), "");
}

// pp, dp_replicate, dp_shard, cp, tp
const MeshDeck context_meshes[] = {{1, 1, 1, 2, 1}, {1, 1, 1, 2, 2}, {2, 1, 1, 2, 1}, {1, 1, 1, 4, 1},
                                   {1, 1, 2, 2, 1}, {1, 1, 1, 3, 1}, {2, 1, 1, 2, 2}, {1, 1, 1, 4, 2}};

// Every way that keys and values go over cp, with each policy of recomputation; documents, and microbatches of two
// sequences, are the models'.
TEST(DeltaNet, ContextParallelEqualsOneRank) {
  std::vector<TestModel> models;
  for (const auto& list : {test_models(), moe_models()})
    for (const TestModel& model : list)
      if (takes_delta(model.deck)) models.push_back(model);
  std::vector<LayoutCase> cases;
  std::size_t number = 0;
  for (const MeshDeck& mesh : context_meshes)
    for (std::size_t method = 0; method < 3; ++method, ++number) {
      const TestModel& model = models[number % models.size()];
      Choice choice;
      choice.zero_stage = mesh.dp_shard > 1 ? 3 : static_cast<std::int64_t>(number % 2);
      choice.accumulate = choice.zero_stage > 1 ? Accumulation::sharded : Accumulation::unsharded;
      choice.recompute = recompute_of(number + number / 3);
      const Deck deck = layout_deck(model.deck, mesh, choice, 3 * number + method);
      cases.push_back({model.name, with_delta(deck, number)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_EQ(failures_of(thinned(cases, 2), part_of(3 * 8, 2), check), "");
}

// 32,768 with FORGE_LONG=1.
const std::int64_t long_tokens = long_run() ? 32768 : 4096;

// One layer of the rule, and one with attention in a window. On cp ranks that divide a sequence.
Deck long_deck(std::int64_t cp) {
  Deck deck = test_models()[0].deck;
  deck.model.layers = 2;
  deck.model.sliding_window = 24;
  deck.mesh.cp = cp;
  deck.train.global_batch_sequences = 1;
  deck.train.sequence_tokens = long_tokens;
  deck.train.head_chunk_rows = 4096;
  deck.data.order = SampleOrder::sequential;
  deck.data.files = {token_file(31, long_tokens + 1)};
  return with_delta(deck, 0);
}

// The tokens of long_deck() with an end of a document, 3, at each multiple of 1,024 and nowhere else.
class Documents {
 public:
  Documents() {
    std::ifstream in(token_file(31, long_tokens + 1), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    for (std::size_t i = 0; i < bytes.size() / 2; ++i) {
      char& token = bytes[2 * i];
      token = static_cast<char>(i % 1024 == 1023 ? 3 : token == 3 ? 4 : token);
    }
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~Documents() { std::filesystem::remove(path_); }
  Documents(const Documents&) = delete;
  Documents& operator=(const Documents&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = token_file(31, long_tokens + 1) + ".documents";
};

TEST(DeltaNet, OneLongDocumentEqualsOneRank) {
  References references;
  for (const std::int64_t cp : {2, 4}) {
    Deck deck = long_deck(cp);
    deck.data.document_end_token = -1;
    ASSERT_EQ(illegality(deck), "");
    EXPECT_EQ(equals_one_rank(deck, references), "") << cp;
  }
}

TEST(DeltaNet, DocumentsOfALongSequenceAreThoseApart) {
  const Documents file;
  Deck apart = long_deck(1);
  apart.data.files = {file.path()};
  apart.train.global_batch_sequences = long_tokens / 1024;
  apart.train.sequence_tokens = 1024;
  ASSERT_EQ(illegality(apart), "");
  const LayoutResult one = run_threads(apart, {});
  EXPECT_EQ(triviality(one, apart), "");
  for (const std::int64_t cp : {1, 2, 4}) {
    Deck deck = long_deck(cp);
    deck.data.files = {file.path()};
    ASSERT_EQ(illegality(deck), "");
    EXPECT_EQ(difference(run_threads(deck, {.one = &one}), one, 1), "") << cp;
  }
}

}  // namespace
}  // namespace forge::test

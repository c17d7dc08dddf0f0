#include <gtest/gtest.h>

#include <string>

#include "layout/check_layout.hpp"

// What ep, etp and the experts' dimensions are held against, and the recipes of public size tables that cannot start.

namespace forge {
namespace {

// Twelve experts on 8 ranks: two stages of 4.
Deck expert_deck() {
  Deck deck;
  ModelDeck& m = deck.model;
  m.layers = 4;
  m.width = 32;
  m.heads = m.kv_heads = 4;
  m.head_dim = 8;
  m.ffn = 64;
  m.vocabulary = 256;
  m.experts = 12;
  m.experts_per_token = 3;
  m.expert_ffn = 18;
  m.shared_expert_ffn = 36;
  deck.mesh.pp = 2;
  deck.train.global_batch_sequences = 16;
  deck.train.sequence_tokens = 16;
  return deck;
}

template <class Change>
std::string report_of(Change&& change, std::int64_t ranks = 8) {
  Deck deck = expert_deck();
  change(deck);
  Report report;
  check_layout(deck, ranks, report);
  try {
    report.throw_if_any("the deck");
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

void expect_parts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(ExpertAxes, LegalOnes) {
  EXPECT_EQ(report_of([](Deck&) {}), "");
  EXPECT_EQ(report_of([](Deck& d) { d.mesh.ep = 4; }), "");
  EXPECT_EQ(report_of([](Deck& d) { d.mesh.tp = 2, d.mesh.ep = 2; }), "");
  EXPECT_EQ(report_of([](Deck& d) { d.mesh.tp = 4, d.mesh.ep = 4, d.mesh.etp = 1; }), "") << "folded over tp";
}

TEST(ExpertAxes, WholeExpertsOnEveryRank) {
  expect_parts(report_of([](Deck& d) { d.mesh.ep = 8; }, 16),
               {"mesh.ep = 8 does not divide model.experts = 12; nearest legal ep: 6 or 12"});
  EXPECT_EQ(report_of([](Deck& d) { d.mesh.ep = 6, d.mesh.dp_shard = 6, d.train.global_batch_sequences = 12; }, 12),
            "");
}

TEST(ExpertAxes, EqualColumnsOnEveryRank) {
  expect_parts(report_of([](Deck& d) { d.mesh.tp = 4; }),
               {"mesh.etp = 4 does not divide model.expert_ffn = 18; nearest legal etp: 3 or 6"});
  expect_parts(report_of([](Deck& d) { d.mesh.tp = 4, d.mesh.etp = 1, d.model.shared_expert_ffn = 34; }),
               {"mesh.tp = 4 does not divide model.shared_expert_ffn = 34; nearest legal tp: 2 or 17"});
  EXPECT_EQ(report_of([](Deck& d) { d.mesh.tp = 4, d.mesh.etp = 1, d.model.shared_expert_ffn = 0; }), "");
}

TEST(ExpertAxes, FitTheRanksOfAStage) {
  expect_parts(
      report_of([](Deck& d) { d.mesh.ep = 3; }),
      {"ep 3 * etp 1 = 3 does not divide dp_replicate * dp_shard * cp * tp = 4",
       "ep * etp * edp = dp_replicate * dp_shard * cp * tp", "legal are mesh.ep 2 or 4, or for ep 3 12 ranks"});
  expect_parts(report_of([](Deck& d) { d.mesh.tp = 2, d.mesh.ep = 4; }),
               {"ep 4 * etp 2 = 8 does not divide", "mesh.ep 2", "for ep 4 16 ranks with mesh.etp 2",
                "8 ranks with mesh.etp 1"});
  expect_parts(report_of([](Deck& d) { d.mesh.tp = 4, d.mesh.etp = 3; }),
               {"mesh.etp 3 must divide mesh.tp 4", "1, 2, 4"});
  expect_parts(report_of([](Deck& d) { d.mesh.ep = 0; }), {"mesh.ep must be at least 1", "is 0"});
}

TEST(ExpertAxes, NothingToSpreadWithoutExperts) {
  const auto dense = [](Deck& d) { d.model.experts = d.model.shared_expert_ffn = 0; };
  expect_parts(report_of([&](Deck& d) { dense(d), d.mesh.ep = 2; }), {"mesh.ep = 2 without model.experts; legal: 1"});
  expect_parts(report_of([&](Deck& d) { dense(d), d.mesh.tp = 2, d.mesh.etp = 1; }),
               {"mesh.etp = 1 without model.experts; legal: 0, or as mesh.tp"});
  EXPECT_EQ(report_of([&](Deck& d) { dense(d), d.mesh.tp = d.mesh.etp = 2; }), "");
}

TEST(ExpertAxes, OneReport) {
  const std::string text = report_of(
      [](Deck& d) {
        d.mesh.tp = 4;
        d.mesh.ep = 5;
        d.model.shared_expert_ffn = 34;
        d.train.global_batch_sequences = 16;
      },
      40);
  expect_parts(text, {"4 errors", "mesh.ep = 5", "mesh.etp = 4", "model.shared_expert_ffn = 34", "global_batch"});
}

// A row of the size table of Megatron-Bridge's guide: the smallest world of these axes, with etp 1.
struct Recipe {
  const char* model;
  MeshDeck mesh;
  std::int64_t smallest;
};

const Recipe recipes[] = {
    {"OLMoE", {.ep = 8, .etp = 1}, 8},
    {"Moonlight", {.tp = 2, .ep = 8, .etp = 1}, 8},
    {"Qwen3-30B-A3B", {.pp = 2, .tp = 4, .ep = 4, .etp = 1}, 8},
    {"GLM-4.5-Air", {.pp = 4, .ep = 8, .etp = 1}, 32},
    {"DeepSeek-V2", {.pp = 4, .ep = 32, .etp = 1}, 128},
    {"GLM-4.5", {.pp = 8, .tp = 2, .ep = 16, .etp = 1}, 128},
    {"Qwen3-235B-A22B", {.pp = 16, .cp = 2, .tp = 4, .ep = 8, .etp = 1}, 128},
    {"Kimi-K2", {.pp = 16, .tp = 2, .ep = 32, .etp = 1}, 512},
    {"DeepSeek-V3", {.pp = 16, .tp = 2, .ep = 64, .etp = 1}, 1024},
};

std::string refusal(const MeshDeck& mesh, std::int64_t world) {
  Report report;
  resolve_mesh(mesh, world, report);
  try {
    report.throw_if_any("the mesh");
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(ExpertAxes, PublicRecipesNameTheirSmallestWorld) {
  for (const Recipe& recipe : recipes) {
    EXPECT_EQ(refusal(recipe.mesh, recipe.smallest), "") << recipe.model;
    EXPECT_EQ(refusal(recipe.mesh, 2 * recipe.smallest), "") << recipe.model;
    for (const std::int64_t world : {recipe.smallest / 2, recipe.smallest / 4}) {
      const std::string text = refusal(recipe.mesh, world);
      const std::string ranks = std::to_string(recipe.smallest);
      EXPECT_TRUE(text.find(" " + ranks + " ranks with mesh.etp 1") != std::string::npos ||
                  text.find("numbers of ranks: " + ranks + ":") != std::string::npos)
          << recipe.model << " on " << world << ": " << text;
      expect_parts(text, {"dp_replicate"});
    }
  }
}

// The guide's size table has DeepSeek-V3 as TP2 PP16 EP64 on 256 ranks.
TEST(ExpertAxes, DeepSeekV3On256Ranks) {
  expect_parts(refusal({.pp = 16, .tp = 2, .ep = 64, .etp = 1}, 256),
               {"ep 64 * etp 1 = 64 does not divide dp_replicate * dp_shard * cp * tp = 16", "mesh.ep 16",
                "for ep 64 1024 ranks with mesh.etp 1"});
  expect_parts(refusal({.pp = 16, .tp = 2, .ep = 64}, 256),
               {"ep 64 * etp 2 = 128 does not divide dp_replicate * dp_shard * cp * tp = 16", "mesh.ep 8",
                "for ep 64 2048 ranks with mesh.etp 2, 1024 ranks with mesh.etp 1"});
}

}  // namespace
}  // namespace forge

#include <gtest/gtest.h>

#include <array>

#include "../long_run.hpp"
#include "config/adapter_deck.hpp"
#include "config/batch_ramp.hpp"
#include "config/fp8_recipe.hpp"
#include "config/schedule_name.hpp"
#include "cover.hpp"
#include "in_pairs.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// Every mesh of 1 … 8 ranks, of models dense, with experts and with multi-token prediction.
std::vector<LayoutCase> pair_layouts() {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const auto& list : {drawn_layouts(ranks, 11), drawn_moe_layouts(ranks, 12), drawn_mtp_layouts(ranks, 1)})
      for (const LayoutCase& c : list) cases.push_back({c.name, with_training(in_pairs(c.deck), 2)});
  return cases;
}

std::string failures_of_pairs(const std::vector<LayoutCase>& cases, std::size_t expected) {
  return failures_of(cases, expected, [](const LayoutCase& c) { return equals_passes_alone(c.deck); });
}

TEST(Overlap, PairsGiveTheBitsOfPassesAlone) {
  EXPECT_EQ(failures_of_pairs(thinned(pair_layouts(), 6), part_of(288, 6)), "");
}

// A tied table has the head's sums of the forward pass and the embedding's of the backward pass: on one stage, and on
// the last one with multi-token prediction.
TEST(Overlap, TiedTablesGiveThem) {
  std::vector<LayoutCase> cases;
  for (LayoutCase c : pair_layouts()) {
    if (c.deck.mesh.pp > 1 && c.deck.model.mtp_depth == 0) continue;
    c.deck.model.tied_embeddings = true;
    if (Deck legal = c.deck; illegality(legal).empty()) cases.push_back(c);
  }
  EXPECT_GE(cases.size(), 150u);
  cases = thinned(cases, 8);
  EXPECT_EQ(failures_of_pairs(cases, cases.size()), "");
}

// Those of pipelines, most with two chunks on a rank, all with B's apart from their W's beside whole backward passes.
std::vector<LayoutCase> split_layouts() {
  std::vector<LayoutCase> cases;
  for (LayoutCase c : pair_layouts()) {
    if (c.deck.mesh.pp == 1) continue;
    c.deck.schedule = {cases.size() % 4 == 0 ? ScheduleName::zero_bubble : ScheduleName::zb_v, 1, "even", ""};
    c.deck.schedule.split = split_string(c.deck, cases.size());
    cases.push_back({c.name, in_pairs(c.deck)});
  }
  return cases;
}

TEST(Overlap, SplitBackwardPassesGiveThem) {
  EXPECT_EQ(failures_of_pairs(thinned(split_layouts(), 3), part_of(99, 3)), "");
}

// All layers and depths on the first stage: W's of the embedding and B's of depths add to one table.
TEST(Overlap, DepthsBesideTheEmbeddingGiveThem) {
  std::vector<LayoutCase> cases;
  for (const TestModel& model : mtp_models())
    for (const std::int64_t pp : {2, 3})
      for (const ScheduleName name : {ScheduleName::zero_bubble, ScheduleName::zb_v}) {
        Deck deck = with_training(model.deck, 2);
        deck.mesh = {.pp = pp, .dp_shard = 1};
        const std::int64_t stages = name == ScheduleName::zb_v ? 2 * pp : pp;
        deck.schedule = {name, 1, "Et*" + std::to_string(deck.model.layers), ""};
        deck.schedule.split += "m*" + std::to_string(deck.model.mtp_depth);
        deck.schedule.split += std::string(static_cast<std::size_t>(stages - 1), '|') + "L";
        deck.train.zero_stage = 0;
        cases.push_back({model.name, in_pairs(deck)});
      }
  EXPECT_EQ(failures_of_pairs(thinned(cases, 3), part_of(24, 3)), "");
}

// The second step has one microbatch less than has pairs, the first one twice as many.
TEST(Overlap, StepsOfARampGiveThem) {
  std::vector<LayoutCase> cases = split_layouts();
  for (LayoutCase& c : cases) {
    TrainDeck& t = c.deck.train;
    const MeshDeck& m = c.deck.mesh;
    const std::int64_t few = least_paired(c.deck.schedule.name, static_cast<int>(m.pp)) - 1;
    const std::int64_t small = few * m.dp_replicate * m.dp_shard;
    t.global_batch_sequences = 2 * small;
    t.batch_ramp = {{1, 0, 2 * small}, {2, 0, small}};
  }
  EXPECT_EQ(failures_of_pairs(thinned(cases, 9), part_of(99, 9)), "");
}

// Products in FP8 of every recipe, whose operands wait for other ranks' largest magnitudes; rows as codes.
TEST(Overlap, RoundedProductsGiveThem) {
  constexpr std::array recipes{Fp8Recipe::block, Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row};
  std::vector<LayoutCase> cases;
  for (LayoutCase c : pair_layouts()) {
    TrainDeck& t = c.deck.train;
    t.precision = PrecisionName::fp8;
    t.fp8_recipe = recipes[cases.size() % recipes.size()];
    t.fp8_carrier = cases.size() % 3 == 0 ? Fp8Carrier::bf16 : Fp8Carrier::fp64;
    t.fp8_experts = t.fp8_dispatch = c.deck.model.experts > 0;
    if (t.fp8_recipe == Fp8Recipe::block) c.deck.model.width = 144;
    t.fp8_gather = true;  // where ZeRO 3 gathers
    if (Deck gathered = c.deck; !illegality(gathered).empty()) t.fp8_gather = false;
    if (Deck legal = c.deck; illegality(legal).empty()) cases.push_back(c);
  }
  EXPECT_GE(cases.size(), 200u);
  cases = thinned(cases, 12);
  EXPECT_EQ(failures_of_pairs(cases, cases.size()), "");
}

// Sums of gradients in bf16; adapters with dropout; gated DeltaNet.
TEST(Overlap, OtherSumsAndLayersGiveThem) {
  std::vector<LayoutCase> cases;
  for (LayoutCase c : pair_layouts()) {
    ModelDeck& m = c.deck.model;
    const std::size_t kind = cases.size() % 3;
    if (kind == 0) {
      c.deck.train.precision = PrecisionName::bf16;
      c.deck.optimizer.gradients = StateType::bf16;
    } else if (kind == 1 && m.experts == 0 && m.attention != AttentionKind::mla) {
      m.adapter.name = AdapterName::lora;
      m.adapter.rank = 3;
      m.adapter.dropout = 0.3;
    } else if (takes_delta(c.deck)) {
      c.deck = with_delta(c.deck, cases.size());
    }
    if (Deck legal = c.deck; illegality(legal).empty()) cases.push_back(c);
  }
  EXPECT_GE(cases.size(), 250u);
  cases = thinned(cases, 12, 1);
  EXPECT_EQ(failures_of_pairs(cases, cases.size()), "");
}

}  // namespace
}  // namespace forge::test

#include <gtest/gtest.h>

#include "config/fp8_recipe.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "nn/dispatch.plan.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

// Models with eight experts that aren't gathered.
std::vector<TestModel> models_of_eight() {
  std::vector<TestModel> models;
  for (TestModel& model : moe_models()) {
    ModelDeck& m = model.deck.model;
    if (m.dispatch == DispatchMethod::all_gather) continue;
    m.experts = 8;
    m.experts_per_token = std::max<std::int64_t>(m.experts_per_token, 1);
    if (m.router_groups > 1) m.router_groups = 4;
    m.dispatch = DispatchMethod::automatic;
    models.push_back(model);
  }
  return models;
}

struct Case {
  MeshDeck mesh;
  int node_ranks;
};
// Eight ranks on nodes of 2 and of 4; stages, tp folded into ep, cp, and copies of the experts.
const Case cases_of_eight[] = {
    {{.dp_shard = 8, .ep = 8, .etp = 1}, 2},
    {{.dp_shard = 8, .ep = 8, .etp = 1}, 4},
    {{.dp_shard = 8, .ep = 4, .etp = 1}, 2},
    {{.dp_shard = 4, .tp = 2, .ep = 8, .etp = 1}, 2},
    {{.dp_shard = 2, .tp = 4, .ep = 8, .etp = 1}, 4},
    {{.pp = 2, .dp_shard = 4, .ep = 4, .etp = 1}, 2},
    {{.dp_shard = 4, .cp = 2, .ep = 8, .etp = 1}, 4},
    {{.dp_replicate = 2, .dp_shard = 4, .ep = 4, .etp = 1}, 2},
    {{.pp = 2, .dp_shard = 2, .tp = 2, .ep = 4, .etp = 1}, 2},
};

Deck deck_on_nodes(const Deck& model, const Case& c, std::size_t n) {
  Choice choice;
  choice.zero_stage = static_cast<int>(n % 4);
  choice.recompute = recompute_of(n / 2);
  Deck deck = layout_deck(model, c.mesh, choice, n);
  deck.mesh.node_ranks = c.node_ranks;
  return deck;
}

int nodes_of(Deck deck) {
  if (const auto rule = illegality(deck); !rule.empty()) return 0;
  return make_setup(deck).buffers.ep_nodes;
}

// Every model on each of the layouts.
TEST(TwoLevel, LayoutsEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const TestModel& model : models_of_eight())
    for (const Case& c : cases_of_eight) cases.push_back({model.name, deck_on_nodes(model.deck, c, cases.size())});
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    const auto nodes = static_cast<int>(c.deck.mesh.ep / c.deck.mesh.node_ranks);
    if (nodes_of(c.deck) != nodes) return "is no exchange over " + std::to_string(nodes) + " nodes";
    return equals_one_rank(c.deck, references);
  };
  EXPECT_EQ(failures_of(cases, 81, check), "");
}

// Rows that travel as codes, made once at their source, in every recipe; two steps of training, too.
TEST(TwoLevel, RowsAsCodesEqualOneRank) {
  std::vector<LayoutCase> cases;
  const auto models = models_of_eight();
  for (const Fp8Recipe recipe : {Fp8Recipe::block, Fp8Recipe::current, Fp8Recipe::delayed, Fp8Recipe::row})
    for (const std::size_t layout : {cases.size() % 3, 3 + cases.size() % 3}) {
      const TestModel& model = models[cases.size() % 7];  // all but the one with an expert without rows
      Deck deck = deck_on_nodes(model.deck, cases_of_eight[layout], cases.size());
      deck.train.precision = PrecisionName::fp8;
      deck.train.fp8_recipe = recipe;
      deck.train.fp8_carrier = Fp8Carrier::fp64;
      deck.train.fp8_experts = deck.train.fp8_dispatch = true;
      if (recipe == Fp8Recipe::block) deck.model.width = 144;
      cases.push_back({model.name, with_training(deck, 2)});
    }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 2, 1e-9); };
  EXPECT_EQ(failures_of(cases, 8, check), "");
}

// What is sent between nodes, by the choices of the router that ran: a row, or its gradient, and its entries for each
// other node of its experts, there and back.
TEST(TwoLevel, ARowCrossesOnceToEachOtherNode) {
  for (const auto& [ep, node_ranks] : {std::pair{8, 2}, {8, 4}, {4, 2}})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Deck deck = layout_deck(models_of_eight().front().deck, {.dp_shard = 8, .ep = ep, .etp = 1}, {}, 0);
      deck.model.experts_per_token = 3;
      deck.model.dispatch_rows = 8;  // one round
      deck.train.recompute = recompute;
      deck.mesh.node_ranks = node_ranks;
      ASSERT_EQ(nodes_of(deck), ep / node_ranks);
      if (const auto rule = illegality(deck); !rule.empty()) FAIL() << rule;
      const LayoutResult result = run_threads(deck, {});
      EXPECT_EQ(result.problem, "");
      const std::int64_t row = 8 * deck.model.width, weight = 8, expert = 4,
                         entries = std::min<std::int64_t>(3, 8 / (ep / node_ranks)),
                         there = row + entries * (weight + expert), back = row;
      const std::int64_t bytes = (recompute == Recompute::full ? 2 : 1) * there + back + row + (row + entries * weight);
      EXPECT_GT(result.records, 0);
      EXPECT_EQ(result.rail_bytes, result.records * bytes) << ep << " on nodes of " << node_ranks;
    }
}

// Sums of gradients in fp32 inside nodes and in the compute type between them: every stage of ZeRO, sums after each
// microbatch and once a step; stages, tp, cp, replicas and experts, whose shards may have nodes of their own.
TEST(TwoLevel, SumsOfGradientsEqualOneRank) {
  const Case layouts[] = {
      {{.dp_shard = 8}, 2},
      {{.dp_shard = 8}, 4},
      {{.dp_shard = 4, .tp = 2}, 4},
      {{.dp_shard = 4, .tp = 2}, 2},
      {{.dp_shard = 2, .cp = 4}, 2},
      {{.dp_shard = 2, .cp = 2, .tp = 2}, 4},
      {{.pp = 2, .dp_shard = 4}, 2},
      {{.dp_replicate = 2, .dp_shard = 4}, 2},
      {{.dp_shard = 8, .ep = 2, .etp = 1}, 4},
      {{.dp_shard = 8, .ep = 4, .etp = 1}, 2},
      {{.dp_shard = 4, .tp = 2, .ep = 2, .etp = 2}, 2},
  };
  std::vector<LayoutCase> cases;
  const auto add = [&](const TestModel& model, const Case& c) {
    Deck deck = deck_on_nodes(model.deck, c, cases.size());
    deck.train.zero_stage = 1 + static_cast<std::int64_t>(cases.size() % 3);
    deck.train.accumulate =
        deck.train.zero_stage == 2 || cases.size() % 2 == 0 ? Accumulation::sharded : Accumulation::unsharded;
    if (deck.train.zero_stage < 2) deck.train.accumulate = Accumulation::automatic;
    deck.train.reduction = ReductionLevels::two_level;
    cases.push_back({model.name, deck});
  };
  for (const TestModel& model : models_of_eight())
    for (const Case& c : layouts) add(model, c);
  for (const TestModel& model : test_models())
    for (const Case& c : layouts)
      if (c.mesh.ep == 1) add(model, c);
  References references;
  const auto check = [&](const LayoutCase& c) -> std::string {
    Deck checked = c.deck;
    if (const auto rule = illegality(checked); !rule.empty()) return rule;
    const MeshShape mesh = make_setup(checked).mesh;
    if (mesh.shard_nodes * mesh.expert_shard_nodes == 1) return "has no two levels";
    return equals_one_rank(c.deck, references);
  };
  EXPECT_EQ(failures_of(cases, 163, check), "");
}

// With sums in two levels and in bf16, bytes sent and memory of a rank are those of the plan.
TEST(TwoLevel, SumsOfGradientsRunAsPlannedInBf16) {
  for (const Case& c :
       {Case{{.dp_shard = 8}, 2}, {{.dp_shard = 4, .tp = 2}, 4}, {{.dp_shard = 8, .ep = 2, .etp = 1}, 4}})
    for (const std::int64_t stage : {1, 2, 3}) {
      Deck deck = deck_on_nodes(models_of_eight().front().deck, c, static_cast<std::size_t>(stage));
      deck.train.zero_stage = stage;
      deck.train.accumulate = Accumulation::automatic;
      deck.train.reduction = ReductionLevels::two_level;
      deck.train.precision = PrecisionName::bf16;
      ASSERT_EQ(illegality(deck), "");
      EXPECT_EQ(run_threads(deck, {}).problem, "") << text_of(deck);
    }
}

// In the order of the plan, with its bytes, where forced_balance deals the experts.
TEST(TwoLevel, RunsAsListed) {
  int runs = 0;
  for (const auto& [ep, node_ranks, chosen] : {std::array{8, 2, 2}, {8, 4, 3}, {4, 2, 4}, {4, 2, 1}})
    for (const PrecisionName precision : {PrecisionName::fp64, PrecisionName::bf16, PrecisionName::fp8}) {
      Deck deck = models_of_eight().front().deck;
      deck.model.forced_balance = true;
      deck.model.experts_per_token = chosen;
      deck.model.dispatch_rows = 1.5;
      deck.model.shared_expert_ffn = runs % 2 == 0 ? 0 : 40;
      deck.train.sequence_tokens = 64;
      deck.data.document_end_token = -1;
      deck.mesh = {.dp_shard = 8, .ep = ep, .etp = 1};
      deck.mesh.node_ranks = node_ranks;
      deck.train.recompute = recompute_of(runs);
      deck.train.precision = precision;
      if (precision == PrecisionName::fp8) {
        deck.train.fp8_carrier = Fp8Carrier::fp64;
        deck.train.fp8_experts = deck.train.fp8_dispatch = true;
      }
      ASSERT_EQ(nodes_of(deck), ep / node_ranks);
      EXPECT_EQ(run_threads(deck, {.alike = true}).problem, "") << text_of(deck);
      ++runs;
    }
  EXPECT_EQ(runs, 12);
}

}  // namespace
}  // namespace forge::test

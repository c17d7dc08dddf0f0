#include "predict/neighbours.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../equivalence/models.hpp"
#include "config/schedule_name.hpp"
#include "predict/advice.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {
namespace {

// Checked for its ranks, in bf16.
Deck deck_on(int ranks, bool experts, const MeshDeck& mesh) {
  Deck deck = (experts ? moe_models() : test_models()).front().deck;
  if (mesh.ep % 4 == 0) deck.model.experts = 8;
  deck.train.precision = PrecisionName::bf16;
  deck.train.head_chunk_rows = 0;
  deck.train.microbatch_sequences = 2;
  deck.mesh = mesh;
  check_deck(deck, ranks);
  return deck;
}

bool has(const std::vector<Neighbour>& list, const std::string& change) {
  return std::any_of(list.begin(), list.end(), [&](const Neighbour& n) { return n.change == change; });
}

TEST(Neighbours, AreLegalAndDiffer) {
  const Deck deck = deck_on(8, true, {.dp_shard = 4, .tp = 2, .ep = 2});
  const auto list = neighbours_of(deck, 8);
  EXPECT_GT(list.size(), 12u);
  for (const Neighbour& n : list) {
    Deck again = n.deck;
    EXPECT_NO_THROW(check_deck(again, 8)) << n.change;
    EXPECT_EQ(ranks_of(n.deck.mesh), 8) << n.change;
    EXPECT_EQ(n.change, layout_difference(deck, n.deck));
    EXPECT_EQ(n.deck.train.global_batch_sequences, deck.train.global_batch_sequences);
    EXPECT_EQ(std::count_if(list.begin(), list.end(), [&](const Neighbour& o) { return o.change == n.change; }), 1);
  }
}

TEST(Neighbours, OfferTwoHopsWhereExpertsAreOnSeveralNodes) {
  Deck deck = deck_on(8, true, {.dp_shard = 8, .ep = 8});
  ASSERT_EQ(deck.model.dispatch, DispatchMethod::all_to_all);
  EXPECT_FALSE(has(neighbours_of(deck, 8), "model.dispatch=automatic"));
  EXPECT_TRUE(has(neighbours_of(deck, 8), "model.dispatch=all_gather"));
  deck.mesh.node_ranks = 4;
  EXPECT_TRUE(has(neighbours_of(deck, 8), "model.dispatch=automatic"));
  deck.model.dispatch = DispatchMethod::automatic;
  EXPECT_TRUE(has(neighbours_of(deck, 8), "model.dispatch=all_to_all"));
  deck.mesh.node_ranks = 8;
  EXPECT_FALSE(has(neighbours_of(deck, 8), "model.dispatch=all_to_all"));
}

TEST(Neighbours, OfferTwoLevelSumsWhereShardsAreOnSeveralNodes) {
  Deck deck = deck_on(8, false, {.dp_shard = 8});
  deck.train.zero_stage = 1;
  EXPECT_FALSE(has(neighbours_of(deck, 8), "train.reduction=two_level"));
  deck.mesh.node_ranks = 4;
  EXPECT_TRUE(has(neighbours_of(deck, 8), "train.reduction=two_level"));
  deck.train.reduction = ReductionLevels::two_level;
  EXPECT_TRUE(has(neighbours_of(deck, 8), "train.reduction=one_level"));
  EXPECT_TRUE(has(neighbours_of(deck, 8), "train.zero_stage=0 train.reduction=one_level"));
  EXPECT_TRUE(has(neighbours_of(deck, 8), "mesh.dp_replicate=2 mesh.dp_shard=4 train.reduction=one_level"));
}

TEST(Neighbours, OfferTheMethodsOfContextParallelism) {
  Deck deck = deck_on(4, false, {.dp_shard = 1, .cp = 4});
  const auto offered = [&](const char* method) {
    return has(neighbours_of(deck, 4), std::string("mesh.cp_method=") + method);
  };
  EXPECT_TRUE(offered("all_gather") && offered("all_to_all"));
  EXPECT_FALSE(offered("two_level"));
  deck.mesh.node_ranks = 2;
  EXPECT_TRUE(offered("two_level mesh.cp_inner=2"));
  deck.mesh.cp_method = CpMethod::two_level;
  EXPECT_TRUE(offered("ring") && !offered("two_level"));
  deck.mesh.cp_inner = 2;
  EXPECT_TRUE(offered("ring mesh.cp_inner=0"));
  EXPECT_TRUE(has(neighbours_of(deck, 4), "mesh.dp_shard=2 mesh.cp=2 mesh.cp_method=ring mesh.cp_inner=0"));
  EXPECT_FALSE(has(neighbours_of(deck_on(4, false, {.dp_shard = 4}), 4), "mesh.cp_method=all_gather"));
}

// check_deck writes tp as etp where the deck leaves it open.
TEST(Neighbours, ChangeTpWhereEtpFollows) {
  const Deck dense = deck_on(4, false, {.dp_shard = 2, .tp = 2});
  ASSERT_EQ(dense.mesh.etp, 2);
  EXPECT_TRUE(has(neighbours_of(dense, 4), "mesh.dp_shard=4 mesh.tp=1"));
  const Deck experts = deck_on(4, true, {.dp_shard = 2, .tp = 2});
  ASSERT_EQ(experts.mesh.etp, 2);
  EXPECT_TRUE(has(neighbours_of(experts, 4), "mesh.dp_shard=4 mesh.tp=1 mesh.etp=1"));
  const Deck whole = deck_on(4, true, {.dp_shard = 2, .tp = 2, .etp = 1});
  EXPECT_TRUE(has(neighbours_of(whole, 4), "mesh.dp_shard=4 mesh.tp=1"));
  // A deck that leaves etp open would have it as tp.
  const auto open = neighbours_of(deck_on(4, true, {.dp_shard = 4}), 4);
  EXPECT_TRUE(has(open, "mesh.dp_shard=2 mesh.tp=2 mesh.etp=1"));
  EXPECT_TRUE(has(open, "mesh.dp_shard=2 mesh.tp=2 mesh.etp=2"));
}

TEST(Neighbours, ChangeSchedulesStagesOfZeroAndAccumulation) {
  Deck deck = deck_on(4, false, {.pp = 2, .dp_shard = 2});
  const auto list = neighbours_of(deck, 4);
  for (const char* change :
       {"schedule.name=zero_bubble", "train.zero_stage=1", "train.zero_stage=1 train.accumulate=sharded",
        "train.zero_stage=2 train.accumulate=sharded", "train.zero_stage=3 train.accumulate=sharded",
        "train.microbatch_sequences=1", "train.microbatch_sequences=4"})
    EXPECT_TRUE(has(list, change)) << change;
  // Keys that only ZeRO-3 has go with it.
  deck.train.zero_stage = 3;
  deck.train.accumulate = Accumulation::automatic;
  deck.train.gather = GatherPolicy::step;
  check_deck(deck, 4);
  EXPECT_TRUE(has(neighbours_of(deck, 4), "train.zero_stage=2 train.gather=microbatch"));
  EXPECT_TRUE(has(neighbours_of(deck, 4), "train.zero_stage=1 train.accumulate=sharded train.gather=microbatch"));
  EXPECT_TRUE(has(neighbours_of(deck, 4), "train.zero_stage=1 train.accumulate=unsharded train.gather=microbatch"));
  // A microbatch that no longer divides the batch, a schedule without stages.
  deck = deck_on(4, false, {.pp = 2, .dp_shard = 2});
  deck.train.global_batch_sequences = 4;
  deck.schedule.name = ScheduleName::zero_bubble;
  check_deck(deck, 4);
  EXPECT_TRUE(has(neighbours_of(deck, 4), "mesh.pp=1 mesh.dp_shard=4 schedule.name=1f1b train.microbatch_sequences=1"));
}

// Quarters of a stage's blocks; where all were recomputed whole, the others are under the policy that drops most.
TEST(Neighbours, OfferBlocksThatAreRecomputedWhole) {
  Deck deck = deck_on(1, false, {});
  deck.model.layers = 8;
  const auto offers = [&](const char* change) { return has(neighbours_of(deck, 1), change); };
  for (const char* blocks : {"2", "4", "6"})
    EXPECT_TRUE(offers(("train.recompute_full_layers=" + std::string(blocks)).c_str()));
  EXPECT_FALSE(offers("train.recompute_full_layers=8"));
  deck.train.recompute = Recompute::full;
  EXPECT_TRUE(offers("train.recompute=selective train.recompute_full_layers=2"));
  deck.train.recompute = Recompute::selective;
  deck.train.recompute_full_layers = 4;
  EXPECT_TRUE(offers("train.recompute_full_layers=0"));
  EXPECT_TRUE(offers("train.recompute=full train.recompute_full_layers=0"));
  EXPECT_FALSE(offers("train.recompute=full"));
}

// Each block more takes time and saves memory, up to a step that recomputes all.
TEST(Neighbours, BlocksRecomputedWholeTakeTimeForMemory) {
  const Machine machine = read_machine("h100_8");
  Deck deck = deck_on(1, false, {});
  deck.train.recompute = Recompute::selective;
  // Kernels are longer than launches, and activations more than the workspace.
  deck.model.width = 1024;
  deck.model.heads = deck.model.kv_heads = 16;
  deck.model.head_dim = 64;
  deck.model.ffn = 4096;
  deck.train.sequence_tokens = 4096;
  std::vector<Outcome> outcomes;
  for (std::int64_t n = 0; n <= deck.model.layers; ++n) {
    deck.train.recompute_full_layers = n;
    outcomes.push_back(outcome_of(machine, deck));
  }
  for (std::size_t n = 1; n < outcomes.size(); ++n) {
    EXPECT_GT(outcomes[n].time.seconds, outcomes[n - 1].time.seconds) << n;
    EXPECT_LE(outcomes[n].memory.total(), outcomes[n - 1].memory.total()) << n;
  }
  EXPECT_LT(outcomes.back().memory.total(), outcomes.front().memory.total());
  deck.train.recompute_full_layers = 0;
  deck.train.recompute = Recompute::full;
  const Outcome full = outcome_of(machine, deck);
  EXPECT_DOUBLE_EQ(full.time.seconds, outcomes.back().time.seconds);
  EXPECT_EQ(full.memory.total(), outcomes.back().memory.total());
}

PredictedNeighbour predicted(const Deck& deck, const std::string& kind, double seconds, std::size_t bytes) {
  return {{kind, kind == "etp" ? "mesh.etp=1" : "another", deck}, seconds, bytes, true};
}

TEST(Advice, IsGivenWithAReasonAlone) {
  const Machine machine = read_machine("h100_8");
  Outcome o = outcome_of(machine, deck_on(4, true, {.pp = 2, .tp = 2}));
  o.time.wire = {};
  const double seconds = o.time.seconds;
  const std::size_t bytes = o.memory.total();
  Deck whole = o.deck;
  whole.mesh.etp = 1;
  EXPECT_TRUE(advice_of(o, {predicted(whole, "etp", seconds, bytes)}).empty());
  const auto of_experts = advice_of(o, {predicted(whole, "etp", 0.8 * seconds, bytes)});
  ASSERT_EQ(of_experts.size(), 1u);
  EXPECT_EQ(of_experts[0].substr(0, 14), "mesh.etp = 2: ");
  EXPECT_NE(of_experts[0].find("mesh.etp = 1 (+25.0 %)"), std::string::npos) << of_experts[0];

  o.time.wire[0] = 2 * seconds;
  const auto of_links = advice_of(o, {predicted(o.deck, "dp", 0.8 * seconds, bytes)});
  ASSERT_EQ(of_links.size(), 1u);
  EXPECT_NE(of_links[0].find("better: another (+25.0 %), or --search"), std::string::npos) << of_links[0];
  o.time.wire = {};

  Deck plain = o.deck;
  o.deck.schedule.name = ScheduleName::zero_bubble;
  EXPECT_TRUE(advice_of(o, {predicted(plain, "schedule", seconds, bytes)}).empty());
  EXPECT_TRUE(advice_of(o, {predicted(plain, "schedule", 1.1 * seconds, bytes / 2)}).empty());
  const auto of_schedule = advice_of(o, {predicted(plain, "schedule", seconds, bytes / 2)});
  ASSERT_EQ(of_schedule.size(), 1u);
  EXPECT_EQ(of_schedule[0].substr(0, 33), "schedule.name = zero_bubble: 1f1b") << of_schedule[0];
}

}  // namespace
}  // namespace forge::test

#include "plan/warnings.hpp"

#include <gtest/gtest.h>

#include "../equivalence/models.hpp"
#include "plan/rank_memory.hpp"
#include "schedule/check_deck.hpp"

namespace forge::test {
namespace {

Deck dense_deck() {
  return test_models().front().deck;
}

std::vector<std::string> told(Deck deck, int ranks, const Site& site = {}) {
  check_deck(deck, ranks);
  return warnings_of(make_setup(deck), site);
}

// The one warning that a deck is expected to have, by its beginning.
void expect_only(const std::string& begin, const std::vector<std::string>& warnings) {
  ASSERT_EQ(warnings.size(), 1u) << begin;
  EXPECT_EQ(warnings[0].substr(0, begin.size()), begin);
}

TEST(Warnings, AreNotGivenWithoutAReason) {
  Deck deck = dense_deck();
  EXPECT_TRUE(told(deck, 1).empty());
  deck.mesh.tp = 2;
  deck.mesh.dp_shard = 4;
  EXPECT_TRUE(told(deck, 8).empty());
  EXPECT_TRUE(told(deck, 8, {.ranks_per_node = 2}).empty());
}

TEST(Warnings, TellOfRunsThatAreCutShort) {
  Deck deck = dense_deck();
  deck.train.steps = 10;
  deck.optimizer.schedule = RateSchedule::wsd;
  deck.optimizer.warmup_steps = 4;
  deck.optimizer.decay_steps = 6;
  EXPECT_TRUE(told(deck, 1).empty());
  deck.optimizer.decay_steps = 7;
  expect_only(
      "optimizer.decay_steps = 7 with optimizer.warmup_steps = 4 and train.steps = 10: wsd decays over the 6 steps",
      told(deck, 1));
  deck.train.steps = 3;
  expect_only("optimizer.warmup_steps = 4 with train.steps = 3: the run ends within its warm-up", told(deck, 1));
  deck = dense_deck();
  deck.train.steps = 10;
  deck.optimizer.cooldown_from = 9;
  EXPECT_TRUE(told(deck, 1).empty());
  deck.optimizer.cooldown_from = 10;
  expect_only("optimizer.cooldown_from = 10 with train.steps = 10: the run ends before its cooldown", told(deck, 1));
  deck = dense_deck();
  deck.train.steps = 10;
  deck.output.profile = {{3, 4}, {10, 10}};
  EXPECT_TRUE(told(deck, 1).empty());
  deck.output.profile = {{9, 11}};
  expect_only("output.profile = 9-11 with train.steps = 10: the run ends before step 11", told(deck, 1));
  deck.output.profile = {{9, 9}};
  deck.output.profile_ranks = {{0, 1}};
  expect_only("output.profile_ranks = 0-1: the run has no ranks behind 0", told(deck, 1));
  deck.output.profile_ranks = {};
  deck.train.steps = 300;
  deck.output.profile = {{1, 257}};
  expect_only("output.profile = 1-257 asks for 257 files, one for each step and rank", told(deck, 1));
}

TEST(Warnings, TellOfTensorParallelRanksOnSeveralNodes) {
  Deck deck = dense_deck();
  deck.mesh.tp = 4;
  EXPECT_TRUE(told(deck, 4, {.ranks_per_node = 4}).empty());
  expect_only("mesh.tp = 4 has groups on 2 nodes of 2 ranks", told(deck, 4, {.ranks_per_node = 2}));
}

TEST(Warnings, TellOfIdlePipelineRanks) {
  Deck deck = dense_deck();
  deck.mesh.pp = 2;
  deck.train.microbatch_sequences = 1;
  deck.train.global_batch_sequences = 4;
  // Of 5 + 1 pairs of forward and backward, one is waited for.
  expect_only("schedule.name = 1f1b with 4 microbatches on mesh.pp = 2: ranks idle 20.0 % of a step", told(deck, 2));
  deck.train.global_batch_sequences = 16;
  EXPECT_TRUE(told(deck, 2).empty());
}

TEST(Warnings, TellOfContextParallelismOverShortSequences) {
  Deck deck = dense_deck();
  deck.mesh.cp = 2;
  expect_only("mesh.cp = 2 with train.sequence_tokens = 16", told(deck, 2));
  deck.train.sequence_tokens = 8192;
  deck.model.max_positions = 8192;
  EXPECT_TRUE(told(deck, 2).empty());
}

TEST(Warnings, TellOfPairsThatHideNothing) {
  Deck deck = dense_deck();
  deck.model.tied_embeddings = false;
  deck.train.microbatch_sequences = 1;
  deck.train.overlap = Overlap::pairs;
  deck.mesh.dp_shard = 2;
  expect_only("train.overlap = pairs where no layer waits for other ranks", told(deck, 2));
  deck.mesh.dp_shard = 1;
  deck.mesh.tp = 2;
  EXPECT_TRUE(told(deck, 2).empty());
}

TEST(Warnings, TellOfManyExpertsOnEachRank) {
  Deck deck = moe_models().front().deck;
  deck.model.experts = 32;
  deck.mesh.dp_shard = 2;
  expect_only("mesh.ep = 1 with model.experts = 32 on 2 ranks a stage", told(deck, 2));
  deck.mesh.ep = 2;
  EXPECT_TRUE(told(deck, 2).empty());
}

TEST(Warnings, TellOfAdaptersThatPeftCannotRead) {
  Deck deck = moe_models().front().deck;
  deck.model.router_bias_rate = 0;
  deck.model.adapter.name = AdapterName::lora;
  deck.model.adapter.targets = {"q_proj", "up_proj"};
  expect_only("adapter.targets has up_proj of experts without gate_proj: PEFT reads both or neither", told(deck, 1));
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"gate_proj", "up_proj"}, {"down_proj"}, {}}) {
    deck.model.adapter.targets = targets;
    EXPECT_TRUE(told(deck, 1).empty());
  }
}

TEST(Warnings, TellOfRoomThatIsNotUsed) {
  Deck deck = dense_deck();
  deck.train.recompute = Recompute::none;
  Deck checked = deck;
  check_deck(checked, 1);
  const std::size_t need = rank_memory(make_setup(checked), RunKind::training).total();
  EXPECT_TRUE(told(deck, 1, {.usable_bytes = need + need / 2}).empty());
  expect_only("50 % of the GPU's memory is used", told(deck, 1, {.usable_bytes = 2 * need}));
  deck.train.recompute = Recompute::full;  // the least policy with room is named
  expect_only("train.recompute = full where none has room", told(deck, 1, {.usable_bytes = need + need / 20}));
  EXPECT_TRUE(told(deck, 1, {.usable_bytes = need}).empty()) << "what isn't planned needs some, too";
  deck.train.recompute = Recompute::none;
  deck.train.recompute_full_layers = 1;
  expect_only("train.recompute = none and train.recompute_full_layers = 1 where none alone has room",
              told(deck, 1, {.usable_bytes = need + need / 20}));
}

}  // namespace
}  // namespace forge::test

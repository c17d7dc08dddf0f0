#include "plan/traffic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "../equivalence/cover.hpp"
#include "../equivalence/layout_run.hpp"
#include "../equivalence/models.hpp"
#include "config/read.hpp"
#include "config/text.hpp"
#include "core/error.hpp"
#include "formula_cases.hpp"
#include "layout/mesh_shape.hpp"
#include "plan/setup.hpp"

// plan_traffic, which `forge show` prints and counters are compared with, against a second computation of the bytes.

namespace forge::test {
namespace {

// "" where plan and formula agree on every group; `deck` has passed check_deck.
std::string plan_difference(const Deck& deck, int rank) {
  const RunSetup setup = make_setup(deck, rank);
  std::map<std::string, SentBytes> formula;
  for (const GroupBytes& group : sent_in_step(deck, rank)) formula[group.name] = group.sent;
  for (const auto& [name, traffic] : plan_traffic(setup.buffers, setup.spec, setup.mesh, setup.share, setup.schedule))
    if (const SentBytes planned = by_kind(traffic); planned != formula[name])
      return "rank " + std::to_string(rank) + ", " + name + ": planned " + bytes_text(planned) + "; by the formula " +
             bytes_text(formula[name]);
  return "";
}

class PlannedTraffic : public testing::Test {
 protected:
  void expect_formula(Deck deck, const std::string& name) {
    ASSERT_EQ(illegality(deck), "") << name;
    for (int rank = 0; rank < ranks_of(deck.mesh); ++rank)
      ASSERT_EQ(plan_difference(deck, rank), "") << name << ", " << text_of(deck);
    ++cases_;
    for (const GroupBytes& group : sent_in_step(deck, 0))
      if (group.sent.total() > 0) sending_.insert(group.name);
  }

  std::size_t cases_ = 0;
  std::set<std::string> sending_;  // groups that have sent anything
};

// A draw of every mesh up to 8 ranks and of 12, 16 and 24: 96 + 75 + 70 + 175.
TEST_F(PlannedTraffic, OfDenseLayoutsIsTheFormulas) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24})
    for (LayoutCase c : drawn_layouts(ranks, 31)) {
      simplify(c.deck);
      expect_formula(c.deck, c.name);
    }
  EXPECT_EQ(cases_, 416u);
  EXPECT_EQ(sending_, (std::set<std::string>{"scalars", "tp", "tp_behind", "cp", "cp_inner", "cp_outer", "pp",
                                             "gradients", "gradient_shards", "gradient_replicas", "gradient_tp",
                                             "gradient_copies", "gradient_tied", "parameter_shards"}));
}

TEST_F(PlannedTraffic, OfLayoutsWithExpertsIsTheFormulas) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24})
    for (LayoutCase c : drawn_moe_layouts(ranks, 31)) {
      simplify(c.deck);
      expect_formula(c.deck, c.name);
      if (dispatches_codes(c.deck)) expect_formula(c.deck, c.name + " as codes");
    }
  EXPECT_EQ(cases_, 416u + 47);  // the latter with rows that travel as codes
  for (const char* group : {"ep", "etp", "expert_gradients", "expert_gradient_shards", "expert_gradient_replicas",
                            "expert_parameter_shards"})
    EXPECT_TRUE(sending_.contains(group)) << group;
}

// Sums of gradients in two levels, of all layouts that have them on nodes of 2, 4 and 8 ranks.
TEST_F(PlannedTraffic, OfTwoLevelSumsIsTheFormulas) {
  for (const int ranks : {4, 8, 12, 16, 24})
    for (auto list : {drawn_layouts(ranks, 47), drawn_moe_layouts(ranks, 47)})
      for (LayoutCase c : list) {
        simplify(c.deck);
        c.deck.mesh.node_ranks = std::array{2, 4, 8}[cases_ % 3];
        c.deck.train.reduction = ReductionLevels::two_level;
        if (illegality(c.deck).empty()) expect_formula(c.deck, c.name);
      }
  EXPECT_GT(cases_, 50u);
  for (const char* group : {"gradient_node", "gradient_rail", "expert_gradient_node", "expert_gradient_rail"})
    EXPECT_TRUE(sending_.contains(group)) << group;
}

// Decks of inputs/ that the formula has no word for, in the order of their names.
const std::vector<std::string> without_formula = {
    "13b_32gpu_tp4_pp2",       "29b_32gpu_tp4_pp2",       "70b_32gpu_tp4_pp4",       "7b_16gpu_muon",
    "deepseek_v3_1024gpu",     "deepseek_v3_1024gpu_vp4", "deepseek_v3_128k_256gpu", "deepseek_v3_2048gpu_fp8",
    "deepseek_v3_256gpu",      "finetune_lora_70b",       "finetune_lora_8b",        "glm45_128gpu",
    "glm45_air_32gpu",         "kimi_k2_1024gpu",         "kimi_k2_512gpu",          "llama3_405b_1024gpu",
    "llama3_405b_128k_256gpu", "llama3_405b_256gpu",      "minimax_m2_256gpu",       "moonlight_16gpu",
    "moonlight_8gpu_tp2",      "qwen3_235b_256gpu",       "qwen3_235b_256gpu_cp2",   "qwen3_5_27b_64gpu",
    "qwen3_5_35b_32gpu",       "qwen3_next_80b_64gpu"};

// The first, the last and a rank in the middle of every other deck.
TEST_F(PlannedTraffic, OfShippedDecksIsTheFormulas) {
  std::vector<std::string> refused;
  for (const auto& entry : std::filesystem::directory_iterator("inputs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string file = entry.path();
    Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
    ASSERT_EQ(illegality(deck), "") << file;
    const int ranks = static_cast<int>(ranks_of(deck.mesh));
    try {
      sent_in_step(deck, 0);
    } catch (const Error&) {
      refused.push_back(entry.path().stem());
      continue;
    }
    for (const int rank : {0, ranks / 2, ranks - 1}) EXPECT_EQ(plan_difference(deck, rank), "") << file;
    ++cases_;
  }
  std::sort(refused.begin(), refused.end());
  EXPECT_EQ(refused, without_formula);
  EXPECT_GE(cases_, 46u);
}

// What `forge show` looks at of many shards is what each of them sends.
TEST(TrafficOfShards, IsThatOfEach) {
  int sharded = 0;
  for (LayoutCase c : drawn_layouts(8, 31)) {
    simplify(c.deck);
    const RunSetup s = make_setup(c.deck, 0);
    std::vector<int> shards;
    for (int i = s.mesh.dense_shards() - 1; i >= 0; --i) shards.push_back(i);
    const auto list = plan_traffic_of_shards(s.buffers, s.spec, s.mesh, s.share, s.schedule, shards);
    ASSERT_EQ(list.size(), shards.size());
    for (std::size_t i = 0; i < shards.size(); ++i) {
      RankShare share = s.share;
      for (LocalUnit& unit : share.units)
        if (!unit.is_experts()) unit.zero.shard = shards[i];
      const auto one = plan_traffic(s.buffers, s.spec, s.mesh, share, s.schedule);
      for (std::size_t g = 0; g < one.size(); ++g)
        EXPECT_EQ(bytes_text(by_kind(list[i][g].second)), bytes_text(by_kind(one[g].second))) << c.name << one[g].first;
    }
    sharded += shards.size() > 1;
  }
  EXPECT_GT(sharded, 10);
}

}  // namespace
}  // namespace forge::test

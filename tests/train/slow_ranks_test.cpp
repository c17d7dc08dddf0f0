#include "train/slow_ranks.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "config/schedule_name.hpp"
#include "rig.hpp"

namespace forge::test {
namespace {

std::vector<int> numbers(const ComputationReport& report) {
  std::vector<int> list;
  for (const SlowRank& rank : report.slow) list.push_back(rank.rank);
  return list;
}

using Numbers = std::vector<int>;

// By all three: 10 %, a deviation, 5 ms.
TEST(SlowRanks, AreFarAboveTheMedian) {
  const auto slow = [](std::vector<double> seconds, int stages = 1) {
    return numbers(compare_computation(seconds, stages));
  };
  EXPECT_EQ(slow({1, 1.05, 0.97, 1.09}), Numbers{});
  EXPECT_EQ(slow({1, 1.05, 1.3, 0.97}), Numbers{2});
  EXPECT_EQ(slow({1, 1.3}), Numbers{1});
  EXPECT_EQ(slow({1.3, 1}), Numbers{0});
  EXPECT_EQ(slow({1.3}), Numbers{});
  EXPECT_EQ(slow({1, 1, 1.2, 1, 1.5, 1, 1, 1}), (Numbers{4, 2}));
  EXPECT_EQ(slow({1, 1, 1, 1.15, 2, 1, 1, 1}), Numbers{4});  // 1.15 is within a deviation
  EXPECT_EQ(slow({0.004, 0.008}), Numbers{});
  EXPECT_EQ(slow({0.004, 0.0095}), Numbers{1});
  // A stage's ranks have other work than another's.
  EXPECT_EQ(slow({1, 1, 2, 2}, 2), Numbers{});
  EXPECT_EQ(slow({1, 1, 1.5, 2, 2, 2}, 2), Numbers{2});
  EXPECT_EQ(slow({1, 2}, 2), Numbers{});
  const ComputationReport report = compare_computation(std::vector{1.0, 1.5, 1.0, 3.0}, 1);
  EXPECT_EQ(report.median, 1);
  ASSERT_EQ(report.slow.size(), 1u);
  EXPECT_EQ(report.slow[0].of_median, 3);
}

TEST(SlowRanks, StayInTheLogAsALine) {
  std::vector<SlowRank> slow{{12, "node07", 1.313}, {3, "", 1.2}};
  EXPECT_EQ(slow_ranks_line({}), "");
  EXPECT_EQ(slow_ranks_line(slow),
            "            slow ranks: 12 on node07 (1.31 times the median's computation), 3 (1.20 times)\n");
  slow.resize(300, {5, "node06", 1.15});
  EXPECT_TRUE(slow_ranks_line(slow).ends_with("5 on node06 (1.15 times), 296 more\n")) << slow_ranks_line(slow);
  StepRecord record;
  EXPECT_EQ(to_json(record).find("computation"), std::string::npos);
  record.computation = {0.5, {{12, "node07", 1.25}}};
  EXPECT_NE(
      to_json(record).find(
          R"("computation": {"median": 0.5, "slow": 1, "slow_ranks": [{"rank": 12, "node": "node07", "of_median": 1.25}]})"),
      std::string::npos)
      << to_json(record);
}

// Seconds that the ranks of a layout compute for, three times; what rank 0 finds then.
std::optional<ComputationReport> found(const Deck& deck, const std::string& faults) {
  Rig<double> rig(deck);
  SlowRanks slow(rig.mesh.world(), rig.mesh.shape().pp, environment);
  setenv("FORGE_FAULT", faults.c_str(), 1);
  std::optional<ComputationReport> report;
  for (std::int64_t s = 1; s <= 3; ++s) {
    EXPECT_FALSE(report);
    rig.session.timeline().begin(rig.session.stream(), Timeline::Of::waits);
    rig.gradients(s);
    rig.session.timeline().stop();
    report = slow.add(rig.session.timeline().seconds_between_waits());
  }
  unsetenv("FORGE_FAULT");
  return report;
}

std::string slow_in_steps(int rank, double seconds) {
  return "slow:" + std::to_string(rank) + ":gradients:" + std::to_string(seconds);
}

// All ranks but the slow one wait for it, in the layers or behind them.
TEST(SlowRanks, AreToldFromThoseThatWait) {
  const int ranks = environment->size();
  if (ranks == 1) GTEST_SKIP() << "one rank has none to be compared with";
  const auto check = [&](const Deck& deck, const std::string& name) {
    for (const int slow : {0, ranks - 1}) {
      const auto report = found(deck, slow_in_steps(slow, 0.2));
      EXPECT_EQ(report.has_value(), environment->rank() == 0);
      if (!report) continue;
      ASSERT_EQ(numbers(*report), Numbers{slow}) << name;
      EXPECT_GT((report->slow[0].of_median - 1) * report->median, 0.1) << name;
      EXPECT_EQ(report->slow[0].node, environment->node_name(slow));
    }
    std::string all;
    for (int r = 0; r < ranks; ++r) all += (r > 0 ? "," : "") + slow_in_steps(r, 0.4);
    if (const auto report = found(deck, all)) {
      EXPECT_EQ(numbers(*report), Numbers{}) << name;
      EXPECT_GT(report->median, 0.4) << name;
    }
  };
  Deck deck = tiny_deck();
  deck.train.zero_stage = 3;
  deck.mesh.dp_shard = ranks;
  check(deck, "dp_shard");
  if (ranks != 3) {
    deck.mesh = {};
    deck.mesh.dp_shard = deck.mesh.etp = 1;
    deck.mesh.cp = ranks;
    deck.train.sequence_tokens = 8;
    check(deck, "cp");
  }
  if (ranks == 4) {
    deck.mesh.cp = 1;
    deck.mesh.pp = deck.mesh.tp = 2;
    check(deck, "pp and tp");
  }
}

}  // namespace
}  // namespace forge::test

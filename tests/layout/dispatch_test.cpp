#include <gtest/gtest.h>

#include <map>

#include "core/random.hpp"
#include "layout/dispatch_rounds.hpp"

namespace forge {
namespace {

struct Case {
  int ep, etp;
  std::int64_t experts, round_rows;
  std::vector<std::int64_t> counts;  // (sources, experts)

  ExpertRanks ranks(int ep_rank, int etp_rank) const { return {ep, ep_rank, etp, etp_rank, experts}; }
  DispatchPlan plan(int ep_rank, int etp_rank) const { return {ranks(ep_rank, etp_rank), counts, round_rows}; }
  std::int64_t count(int ep_rank, int etp_rank, std::int64_t expert) const {
    return counts[static_cast<std::size_t>((ep_rank * etp + etp_rank) * experts + expert)];
  }
};

Case drawn(std::uint64_t key) {
  const int ep = 1 + static_cast<int>(mix(key, 0) % 4), etp = 1 + static_cast<int>(mix(key, 1) % 3);
  Case c{ep,
         etp,
         ep * static_cast<std::int64_t>(1 + mix(key, 2) % 4),
         1 + static_cast<std::int64_t>(mix(key, 3) % 30),
         {}};
  for (std::int64_t i = 0; i < ep * etp * c.experts; ++i) {
    const auto n = mix(key, 10 + static_cast<std::uint64_t>(i));
    c.counts.push_back(n % 3 == 0 ? 0 : static_cast<std::int64_t>(n / 3 % 9));
  }
  return c;
}

class Plans : public testing::TestWithParam<int> {};

// What one rank sends is what the other expects, all of it arrives once, in rounds that no rank's rows exceed.
TEST_P(Plans, EveryPairArrivesOnce) {
  const Case c = drawn(static_cast<std::uint64_t>(GetParam()));
  const int rounds = c.plan(0, 0).rounds();
  std::map<std::pair<int, int>, std::int64_t> next;  // of (source, receiving group): the place that comes next
  for (int round = 0; round < rounds; ++round)
    for (int to = 0; to < c.ep; ++to) {
      std::int64_t rows = 0;
      for (int t = 0; t < c.etp; ++t)
        for (int from = 0; from < c.ep; ++from) {
          const DispatchPlan source = c.plan(from, t);
          ASSERT_EQ(source.rounds(), rounds);
          const Range sent = source.sent(round, to);
          std::int64_t first = 0;
          for (std::int64_t e = 0; e < to * (c.experts / c.ep); ++e) first += c.count(from, t, e);
          auto& place = next.try_emplace({from * c.etp + t, to}, first).first->second;
          EXPECT_EQ(sent.begin, place);
          place = sent.end;
          for (int at = 0; at < c.etp; ++at) EXPECT_EQ(c.plan(to, at).received(round, from, t), sent.size());
          rows += sent.size();
        }
      const DispatchPlan here = c.plan(to, 0);
      EXPECT_EQ(here.rows(round), rows);
      EXPECT_LE(rows, c.round_rows);
      EXPECT_EQ(here.offsets(round).back(), rows);
      std::int64_t of_etp = 0;
      for (int t = 0; t < c.etp; ++t) of_etp += here.received_of(round, t);
      EXPECT_EQ(of_etp, rows);
    }
  for (int from = 0; from < c.ep * c.etp; ++from)
    for (int to = 0; to < c.ep; ++to) {
      std::int64_t end = 0;
      for (std::int64_t e = 0; e < (to + 1) * (c.experts / c.ep); ++e) end += c.count(from / c.etp, from % c.etp, e);
      EXPECT_EQ(next.at({from, to}), end);
    }
}

// The blocks of (source, expert) and the offsets of experts count the same rows; each block comes whole over the
// rounds.
TEST_P(Plans, BlocksAddUp) {
  const Case c = drawn(static_cast<std::uint64_t>(GetParam()));
  const std::int64_t here = c.experts / c.ep;
  for (int group = 0; group < c.ep; ++group) {
    const DispatchPlan plan = c.plan(group, c.etp - 1);
    std::vector<std::int64_t> sum(static_cast<std::size_t>(c.ep * c.etp * here), 0);
    for (int round = 0; round < plan.rounds(); ++round) {
      const auto blocks = plan.blocks(round), offsets = plan.offsets(round);
      for (std::int64_t e = 0; e < here; ++e) {
        std::int64_t of_expert = 0;
        for (int source = 0; source < c.ep * c.etp; ++source) {
          const auto i = static_cast<std::size_t>(source * here + e);
          of_expert += blocks[i];
          sum[i] += blocks[i];
        }
        const auto i = static_cast<std::size_t>(e);
        EXPECT_EQ(offsets[i + 1] - offsets[i], of_expert);
      }
    }
    for (int t = 0; t < c.etp; ++t)
      for (int from = 0; from < c.ep; ++from)
        for (std::int64_t e = 0; e < here; ++e)
          EXPECT_EQ(sum[static_cast<std::size_t>((t * c.ep + from) * here + e)], c.count(from, t, group * here + e));
  }
}
INSTANTIATE_TEST_SUITE_P(Drawn, Plans, testing::Range(0, 40));

TEST(OnePlan, NoPairAtAllIsOneRound) {
  const DispatchPlan plan({2, 1, 1, 0, 4}, std::vector<std::int64_t>(8, 0), 5);
  EXPECT_EQ(plan.rounds(), 1);
  EXPECT_EQ(plan.rows(0), 0);
  EXPECT_TRUE(plan.sent(0, 1).empty());
}

}  // namespace
}  // namespace forge

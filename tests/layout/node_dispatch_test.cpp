#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "core/to_size.hpp"
#include "layout/check_layout.hpp"
#include "layout/expert_nodes.hpp"
#include "layout/node_dispatch.hpp"
#include "nn/dispatch.plan.hpp"

namespace forge {
namespace {

struct NodeCase {
  int nodes, here;
  std::int64_t experts, round_rows;
  std::vector<std::int64_t> counts;  // (ep, experts + nodes)

  int ep() const { return nodes * here; }
  NodeDispatchPlan plan(int rank) const { return {{ep(), rank, 1, 0, experts}, nodes, counts, round_rows}; }
  std::int64_t count(int source, std::int64_t column) const {
    return counts[to_size(source * (experts + nodes) + column)];
  }
};

NodeCase drawn_nodes(std::uint64_t key) {
  const int nodes = 2 + static_cast<int>(mix(key, 0) % 3), here = 2 + static_cast<int>(mix(key, 1) % 3);
  NodeCase c{nodes,
             here,
             nodes * here * static_cast<std::int64_t>(1 + mix(key, 2) % 3),
             1 + static_cast<std::int64_t>(mix(key, 3) % 40),
             {}};
  for (std::int64_t i = 0; i < c.ep() * (c.experts + nodes); ++i) {
    const auto n = mix(key, 10 + static_cast<std::uint64_t>(i));
    c.counts.push_back(n % 3 == 0 ? 0 : static_cast<std::int64_t>(n / 3 % 9));
  }
  return c;
}

// What a rank sends to a node is what the rank of its place there stages; inside the node each rank gets, over all
// rounds, all assignments of its experts, of sources on all nodes; and all ranks, of all nodes, have as many rounds.
TEST(NodeDispatch, EveryRecordIsStagedAndEveryAssignmentArrivesOnce) {
  for (std::uint64_t key = 0; key < 40; ++key) {
    const NodeCase c = drawn_nodes(key);
    const int rounds = c.plan(0).rounds();
    for (int rank = 0; rank < c.ep(); ++rank) {
      const NodeDispatchPlan plan = c.plan(rank);
      ASSERT_EQ(plan.rounds(), rounds);
      const int node = rank / c.here, place = rank % c.here;
      std::int64_t begin = 0;
      for (int n = 0; n < c.nodes; ++n) {
        const Range staged = plan.records_staged()[to_size(n)];
        EXPECT_EQ(staged.begin, begin);
        begin = staged.end;
        EXPECT_EQ(staged.size(), c.count(n * c.here + place, c.experts + node));
        EXPECT_EQ(staged.size(), c.plan(n * c.here + place).records_sent()[to_size(node)].size());
      }
      std::int64_t expected = 0, rows = 0;
      const std::int64_t own = c.experts / c.ep();
      for (int source = 0; source < c.ep(); ++source)
        for (std::int64_t e = 0; e < own; ++e) expected += c.count(source, rank * own + e);
      for (int round = 0; round < rounds; ++round) {
        EXPECT_LE(plan.of_node().rows(round), c.round_rows);
        rows += plan.of_node().rows(round);
      }
      EXPECT_EQ(rows, expected) << key << ", rank " << rank;
    }
  }
}

TEST(NodeDispatch, TheNodeThatNeedsMostRoundsDecides) {
  // Two nodes of two ranks, an expert each; every source has six assignments of the last expert.
  NodeCase c{2, 2, 4, 4, {}};
  for (int source = 0; source < 4; ++source) c.counts.insert(c.counts.end(), {0, 0, 0, 6, 0, 6});
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(c.plan(rank).rounds(), 6);
  EXPECT_EQ(c.plan(0).of_node().rounds(), 1);
  EXPECT_EQ(c.plan(3).records_sent()[1].size(), 6);
  EXPECT_EQ(c.plan(3).records_staged()[0].size(), 6);
}

MeshShape mesh_of(int ep, int etp) {
  MeshShape mesh;
  mesh.ep = ep;
  mesh.etp = etp;
  return mesh;
}

TEST(ExpertNodes, AreOfAsManyRanks) {
  EXPECT_EQ(expert_nodes(mesh_of(8, 1), 2).nodes, 4);
  EXPECT_EQ(expert_nodes(mesh_of(8, 1), 4).nodes, 2);
  EXPECT_EQ(expert_nodes(mesh_of(12, 1), 4).nodes, 3);
  EXPECT_EQ(expert_nodes(mesh_of(64, 1), 8).nodes, 8);
  // One node; one rank of a node; a node that two groups share; part of a node; columns; nodes that nobody knows.
  for (const int node_ranks : {8, 1, 3, 16, 5}) EXPECT_EQ(expert_nodes(mesh_of(8, 1), node_ranks).nodes, 1);
  EXPECT_EQ(expert_nodes(mesh_of(12, 1), 8).nodes, 1);
  EXPECT_NE(expert_nodes(mesh_of(12, 1), 8).rule.find("mesh.ep = 12 on nodes of 8 ranks"), std::string::npos);
  EXPECT_NE(expert_nodes(mesh_of(8, 2), 4).rule.find("mesh.etp = 2; legal: 1"), std::string::npos);
  EXPECT_NE(expert_nodes(mesh_of(8, 1), 0).rule.find("not known"), std::string::npos);
}

// The mean over all choices of k experts of all choices of so many groups, one by one.
double counted_nodes(const ModelDeck& m, int nodes) {
  const auto experts = static_cast<unsigned>(m.experts), size = static_cast<unsigned>(m.experts / m.router_groups),
             here = experts / static_cast<unsigned>(nodes);
  double sum = 0, all = 0;
  for (unsigned groups = 0; groups < 1u << m.router_groups; ++groups) {
    if (std::popcount(groups) != m.router_groups_used) continue;
    for (unsigned chosen = 0; chosen < 1u << experts; ++chosen) {
      if (std::popcount(chosen) != m.experts_per_token) continue;
      unsigned of_nodes = 0;
      bool legal = true;
      for (unsigned e = 0; e < experts; ++e) {
        if (!(chosen >> e & 1)) continue;
        legal = legal && groups >> (e / size) & 1;
        of_nodes |= 1u << (e / here);
      }
      if (!legal) continue;
      sum += std::popcount(of_nodes);
      ++all;
    }
  }
  return sum / all;
}

TEST(ExpectedNodes, AreTheMeanOfAllChoices) {
  for (const int nodes : {2, 3, 4, 6})
    for (const auto& [groups, used] : {std::pair{1, 1}, {3, 2}, {4, 2}, {6, 4}})
      for (const int chosen : {1, 2, 3, 4}) {
        ModelDeck m;
        m.experts = 12;
        m.experts_per_token = chosen;
        m.router_groups = groups;
        m.router_groups_used = used;
        EXPECT_NEAR(expected_nodes(m, nodes), counted_nodes(m, nodes), 1e-12) << chosen << " on " << nodes;
      }
}

TEST(ExpectedNodes, AreThoseOfForcedBalance) {
  ModelDeck m;
  m.experts = 8;
  m.forced_balance = true;
  for (const auto& [chosen, nodes, mean] : {std::array{1, 4, 1}, {2, 4, 2}, {4, 4, 4}, {8, 4, 4}, {2, 2, 2}}) {
    m.experts_per_token = chosen;
    EXPECT_EQ(expected_nodes(m, nodes), mean);
  }
}

}  // namespace
}  // namespace forge

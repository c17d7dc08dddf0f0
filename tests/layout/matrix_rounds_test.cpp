#include "layout/matrix_rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "config/read.hpp"
#include "config/text.hpp"
#include "plan/placement.hpp"
#include "plan/setup.hpp"

namespace forge::test {
namespace {

// Work by round and owner.
using Work = std::vector<std::vector<double>>;

// Owners wait for each other round by round: the sum of what the busiest one of each round does, over the mean's.
double imbalance(const Work& rounds) {
  double busiest = 0, mean = 0;
  for (const auto& round : rounds) {
    busiest += *std::max_element(round.begin(), round.end());
    mean += std::accumulate(round.begin(), round.end(), 0.0) / static_cast<double>(round.size());
  }
  return busiest / mean;
}

// Every rank has one element.
std::vector<PartOfRank> of_all(int ranks) {
  std::vector<PartOfRank> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back({r, 1});
  return parts;
}

TEST(MatrixRounds, DealEveryMatrixOnceAndEvenly) {
  const std::vector<MatrixClass> classes{{9, 9, 64}, {4, 4, 129}, {4, 4, 1}, {3, 3, 64}, {0.5, 1, 10}};
  for (const int ranks : {1, 2, 3, 7, 16}) {
    const auto size = static_cast<std::size_t>(ranks);
    std::vector<std::vector<int>> times;
    for (const MatrixClass& c : classes) times.emplace_back(c.matrices, 0);
    Work work;
    for (const auto& round : matrix_rounds(classes, ranks, [&](std::size_t, std::size_t) { return of_all(ranks); })) {
      work.emplace_back(size, 0);
      for (const RoundMember& m : round) {
        work.back().at(static_cast<std::size_t>(m.owner)) += classes[m.shape].flops;
        ++times[m.shape][m.matrix];
      }
      EXPECT_TRUE(std::is_sorted(round.begin(), round.end(), [](const RoundMember& a, const RoundMember& b) {
        return a.shape < b.shape;
      })) << "matrices of a shape don't follow each other";
    }
    for (const auto& of_class : times)
      EXPECT_EQ(std::count(of_class.begin(), of_class.end(), 1), std::ssize(of_class)) << ranks;
    EXPECT_LE(imbalance(work), 1.1) << ranks;
    if (ranks > 1) {
      EXPECT_GE(work.size(), 6u) << "one round after the other hides its way behind another one's work";
    }
  }
}

// A shard that holds all of a shape's matrices bounds its rounds; the other owners get others.
TEST(MatrixRounds, RespectWhatAHolderHasRoomFor) {
  const std::vector<MatrixClass> classes{{4, most_held / 4, 40}, {2, most_held / 8, 80}};
  const auto held = [&](std::size_t shape, std::size_t) {
    return std::vector<PartOfRank>{{shape == 0 ? 0 : 7, classes[shape].elements}};
  };
  Work work;
  for (const auto& round : matrix_rounds(classes, 8, held)) {
    std::vector<std::int64_t> elements(8, 0);
    work.emplace_back(8, 0);
    for (const RoundMember& m : round) {
      work.back()[static_cast<std::size_t>(m.owner)] += classes[m.shape].flops;
      for (const PartOfRank& part : held(m.shape, m.matrix))
        elements[static_cast<std::size_t>(part.rank)] += part.elements;
    }
    EXPECT_LE(*std::max_element(elements.begin(), elements.end()), most_held);
  }
  EXPECT_LE(imbalance(work), 1.05);
}

// Work of the ranks that share a rank's matrices, by round.
Work work_of(const Deck& deck, int rank, bool experts) {
  const RunSetup first = make_setup(deck, rank);
  Work work;
  const Group name = experts ? Group::expert_matrices : Group::matrices;
  for (const int r : ranks_of_group(first.mesh, name, rank, groups_of(first))) {
    const RunSetup setup = make_setup(deck, r);
    std::size_t n = 0;
    for (const MatrixRound& round : setup.share.matrices.rounds) {
      if (round.experts != experts) continue;
      if (work.size() <= n) work.emplace_back();
      double flops = 0;
      for (const MatrixStack& stack : round.stacks)
        flops += static_cast<double>(stack.count()) * newton_schulz_flops(stack.rows, stack.columns);
      work[n++].push_back(flops);
    }
  }
  return work;
}

TEST(MatrixRounds, OfDecksAreEven) {
  const auto expect = [](const char* file, bool experts, double bound) {
    const Deck deck = read_deck(read_text_file(file, 1 << 20, "deck"), file, {});
    const Work work = work_of(deck, 0, experts);
    ASSERT_GT(work.size(), 1u) << file;
    EXPECT_LE(imbalance(work), bound) << file << (experts ? ", experts, " : ", ") << work.size() << " rounds of "
                                      << work[0].size() << " owners";
  };
  expect("inputs/7b_16gpu_muon.yaml", false, 1.1);
  expect("inputs/moonlight_16gpu.yaml", false, 1.1);
  expect("inputs/moonlight_16gpu.yaml", true, 1.1);
}

}  // namespace
}  // namespace forge::test

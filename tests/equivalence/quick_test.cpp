#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

// A small choice of all that the other tests do, for mutations/run.sh and for people in a hurry.

namespace forge::test {
namespace {

TEST(Quick, GradientsEqualOneRank) {
  constexpr std::uint64_t draws = 3;
  std::vector<LayoutCase> cases;
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    for (std::uint64_t key = 10; key < 10 + draws; ++key)
      for (const auto& list : {drawn_layouts(ranks, key), drawn_moe_layouts(ranks, key)})
        cases.insert(cases.end(), list.begin(), list.end());
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); };
  EXPECT_EQ(failures_of(thinned(cases, 1), part_of(2 * draws * (1 + 5 + 5 + 15 + 25 + 35), 1), check), "");
}

TEST(Quick, TrainingEqualsOneRank) {
  constexpr std::int64_t steps = 4;
  std::vector<LayoutCase> cases;
  for (const int ranks : {2, 4, 8})
    for (const auto& list : {drawn_layouts(ranks, 13), drawn_moe_layouts(ranks, 13)})
      for (const LayoutCase& c : list) cases.push_back({c.name, with_training(c.deck, steps)});
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 1), part_of(2 * (5 + 15 + 35), 1), check), "");
}

}  // namespace
}  // namespace forge::test

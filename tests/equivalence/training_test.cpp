#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr std::int64_t steps = 10;

// Ten steps: losses, norms, parameters and the validation loss after them. Meshes up to 8 ranks; there are 96.
TEST(TenSteps, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (LayoutCase c : drawn_layouts(ranks, 2)) cases.push_back({c.name, with_training(c.deck, steps)});
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 4), part_of(96, 4), check), "");
}

TEST(TenSteps, OnMoreRanksEqualOneRank) {
  std::vector<LayoutCase> cases;
  for (const int ranks : {12, 16, 32}) {
    const auto all = drawn_layouts(ranks, 3);
    for (std::size_t i = static_cast<std::size_t>(ranks) % 7; i < all.size(); i += 12)
      cases.push_back({all[i].name, with_training(all[i].deck, steps)});
  }
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, steps, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 2), part_of(6 + 6 + 11, 2), check), "");
}

}  // namespace
}  // namespace forge::test

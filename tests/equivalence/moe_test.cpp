#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "cover.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr int parts = 2;

std::string differences_of(const std::vector<LayoutCase>& cases, std::size_t expected) {
  References references;
  return failures_of(cases, expected, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); });
}

class MoeLayouts : public testing::TestWithParam<int> {};

// Every mesh up to 8 ranks with every ep and etp, 272 of them, once or four times; models, ZeRO, recompute and schedule
// are drawn.
TEST_P(MoeLayouts, UpToEightRanksEqualOne) {
  const auto cases = moe_layouts(8, long_run() ? 4 : 1, parts, GetParam());
  EXPECT_EQ(differences_of(cases, long_run() ? 544 : 136), "");
}
INSTANTIATE_TEST_SUITE_P(Parts, MoeLayouts, testing::Range(0, parts));

// Every n-th of the meshes of so many ranks.
std::vector<LayoutCase> some_of(int ranks, std::size_t every, std::uint64_t key) {
  const auto all = drawn_moe_layouts(ranks, key);
  std::vector<LayoutCase> some;
  for (std::size_t i = static_cast<std::size_t>(ranks) % every; i < all.size(); i += every) some.push_back(all[i]);
  return some;
}

TEST(MoeManyRanks, MeshesOfTwelveAndSixteenEqualOne) {
  auto cases = drawn_moe_layouts(12, 1);
  const auto more = drawn_moe_layouts(16, 1);
  cases.insert(cases.end(), more.begin(), more.end());
  EXPECT_EQ(differences_of(thinned(cases, 3), long_run() ? 75 + 70 : 49), "");
}

TEST(MoeManyRanks, SomeMeshesUpToSixtyFourEqualOne) {
  std::vector<LayoutCase> cases;
  for (const auto& [ranks, every] : {std::pair{18, 5}, {24, 8}, {32, 9}, {36, 25}, {48, 40}, {64, 40}}) {
    const auto some = some_of(ranks, static_cast<std::size_t>(every), 1);
    cases.insert(cases.end(), some.begin(), some.end());
  }
  EXPECT_EQ(differences_of(thinned(cases, 2), long_run() ? 74 : 37), "");
}

// Ten steps: losses, norms, parameters, biases of routers by what they choose, and the validation loss after them.
TEST(MoeTenSteps, EqualOneRank) {
  std::vector<LayoutCase> cases;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const LayoutCase& c : drawn_moe_layouts(ranks, 2)) cases.push_back({c.name, with_training(c.deck, 10)});
  for (const LayoutCase& c : some_of(16, 12, 2)) cases.push_back({c.name, with_training(c.deck, 10)});
  References references;
  const auto check = [&](const LayoutCase& c) { return equals_one_rank(c.deck, references, 10, 1e-9); };
  EXPECT_EQ(failures_of(thinned(cases, 3), long_run() ? 96 + 6 : 34, check), "");
}

}  // namespace
}  // namespace forge::test

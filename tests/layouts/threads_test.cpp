#include <gtest/gtest.h>

#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr int parts = 4;  // of the enumeration, so that they run side by side

class Layouts : public testing::TestWithParam<int> {};

// Every mesh up to 8 ranks with every ZeRO stage, accumulation, recompute policy and schedule; models take turns.
TEST_P(Layouts, UpToEightRanksEqualOne) {
  const auto cases = all_layouts(8, parts, GetParam());
  EXPECT_GE(cases.size(), 1300u);
  References references;
  EXPECT_EQ(failures_of(cases, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); }), "");
  std::printf("%zu layouts\n", cases.size());
}
INSTANTIATE_TEST_SUITE_P(Parts, Layouts, testing::Range(0, parts));

}  // namespace
}  // namespace forge::test

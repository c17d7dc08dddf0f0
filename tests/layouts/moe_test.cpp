#include <gtest/gtest.h>

#include "enumerate.hpp"
#include "models.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr int parts = 2, draws = 2;

std::string expect_one_rank(const std::vector<LayoutCase>& cases) {
  References references;
  return failures_of(cases, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); });
}

class MoeLayouts : public testing::TestWithParam<int> {};

// Every mesh up to 8 ranks with every ep and etp; models, ZeRO, recompute and schedule are drawn.
TEST_P(MoeLayouts, UpToEightRanksEqualOne) {
  const auto cases = moe_layouts(8, draws, parts, GetParam());
  EXPECT_EQ(expect_one_rank(cases), "");
  std::printf("%zu layouts\n", cases.size());
}
INSTANTIATE_TEST_SUITE_P(Parts, MoeLayouts, testing::Range(0, parts));

}  // namespace
}  // namespace forge::test

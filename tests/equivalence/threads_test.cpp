#include <gtest/gtest.h>

#include "../long_run.hpp"
#include "run_threads.hpp"

namespace forge::test {
namespace {

constexpr int parts = 4;  // of the enumeration, so that they run side by side

class Layouts : public testing::TestWithParam<int> {};

// Every mesh up to 8 ranks with every ZeRO stage, accumulation and gathering; recompute policy and schedule are drawn,
// or in a long run all; models take turns. Of the 96 meshes 63 have one stage, with 7 · 3 · 2 choices, and 33 have
// more, with 7 · 3 · 5; 7 choices are of ZeRO.
TEST_P(Layouts, UpToEightRanksEqualOne) {
  const auto cases = thinned(all_layouts(8, long_run(), parts, GetParam()), 1);
  constexpr std::size_t all = 63 * 7 * 3 * 2 + 33 * 7 * 3 * 5, some = 96 * 7;
  static_assert(all == 6111 && all % parts == 3 && some % parts == 0);
  const std::size_t expected = long_run() ? all / parts + (GetParam() > 0) : part_of(some / parts, 1);
  References references;
  EXPECT_EQ(failures_of(cases, expected, [&](const LayoutCase& c) { return equals_one_rank(c.deck, references); }), "");
}
INSTANTIATE_TEST_SUITE_P(Parts, Layouts, testing::Range(0, parts));

}  // namespace
}  // namespace forge::test

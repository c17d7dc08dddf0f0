#include "config/pattern.hpp"

#include <gtest/gtest.h>

#include "config/mixture_keys.hpp"
#include "config/rate_points.hpp"
#include "core/error.hpp"
#include "model/update_rule.hpp"
#include "nn/units.plan.hpp"
#include "small_deck.hpp"

namespace forge {
namespace {

TEST(Pattern, StarsAndQuestionMarks) {
  for (const auto& [pattern, name] : {std::pair{"", ""},
                                      {"*", ""},
                                      {"*", "layers.0.norm1"},
                                      {"*.norm?", "layers.0.norm1"},
                                      {"layers.1?.*", "layers.12.mlp.up"},
                                      {"*a*b", "aabab"},
                                      {"**b", "b"}})
    EXPECT_TRUE(matches(pattern, name)) << pattern << " " << name;
  for (const auto& [pattern, name] : {std::pair{"", "a"},
                                      {"?", ""},
                                      {"*.norm?", "layers.0.norm"},
                                      {"layers.1.*", "layers.12.q"},
                                      {"*a*b", "aaba"},
                                      {"a", "ab"},
                                      {"a*b*", "ac"}})
    EXPECT_FALSE(matches(pattern, name)) << pattern << " " << name;
}

TEST(RatePoints, AreReadOrRefused) {
  const auto points = rate_points(" 1:0.5,  20 : 1e-1 ");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].step, 20);
  EXPECT_EQ(points[1].ratio, 0.1);
  EXPECT_TRUE(rate_points("").empty());
  for (const char* text :
       {"1", "1:", ":1", "a:1", "1:1;2:1", "5:1, 5:0", "5:1, 4:1", "1:-1", "-1:1", "1:nan", "1:1,,2:1"})
    EXPECT_THROW(rate_points(text), BadInput) << text;
}

// A group that no tensor belongs to would be ignored: its pattern matches none, or those of groups before it alone.
TEST(Groups, EachHasATensor) {
  const Deck deck = test::checked([](Deck&) {});
  const std::vector<Unit> units = parameter_units(resolve_model(deck.model));
  const auto check = [&](std::vector<OptimizerGroup> groups) {
    OptimizerDeck optimizer;
    optimizer.groups = std::move(groups);
    check_groups(optimizer, units);
  };
  EXPECT_NO_THROW(check({{"*norm*", {}, 0.1, {}}, {"*", {}, 0.0, {}}}));
  test::expect_bad_input(
      [&] {
        check({{"nothing.*", {}, 0.0, {}}});
      },
      {"optimizer.groups[0].pattern = nothing.*", "matches no tensor"});
  test::expect_bad_input(
      [&] {
        check({{"*", {}, 0.0, {}}, {"*norm*", {}, 0.1, {}}});
      },
      {"optimizer.groups[1].pattern = *norm*", "only tensors that groups before it have"});
}

}  // namespace
}  // namespace forge

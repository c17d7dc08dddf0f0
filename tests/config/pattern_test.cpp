#include "config/pattern.hpp"

#include <gtest/gtest.h>

#include "config/group_keys.hpp"
#include "config/rate_points.hpp"
#include "core/error.hpp"

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

}  // namespace
}  // namespace forge

#include "core/json.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace forge {
namespace {

TEST(Json, TextIsEscaped) {
  EXPECT_EQ(JsonLine().add("a", "x\"\\\n\x01").text(), "{\"a\": \"x\\\"\\\\\\u000a\\u0001\"}\n");
}

TEST(Json, NumbersThatJsonLacksAreNull) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(JsonLine().add("a", 0.1).add("b", infinite).json(), "{\"a\": 0.1, \"b\": null}");
}

TEST(Json, ObjectsAndListsNest) {
  JsonLine all;
  all.add("a", std::vector{JsonLine().add("b", true), JsonLine()}).add("c", JsonLine());
  all.add("d", std::vector<std::string>{"y", "z"}).add("e", std::vector{1, 2});
  EXPECT_EQ(all.text(), "{\"a\": [{\"b\": true}, {}], \"c\": {}, \"d\": [\"y\", \"z\"], \"e\": [1, 2]}\n");
  EXPECT_EQ(all.lines(),
            "{\n  \"a\": [{\"b\": true}, {}],\n  \"c\": {},\n  \"d\": [\"y\", \"z\"],\n  \"e\": [1, 2]\n}\n");
}

}  // namespace
}  // namespace forge

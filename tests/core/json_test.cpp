#include "core/json.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace forge {
namespace {

TEST(Json, TextIsEscaped) {
  EXPECT_EQ(JsonLine().add("a", std::string("x\"\\\n\x01")).text(), "{\"a\": \"x\\\"\\\\\\u000a\\u0001\"}\n");
}

TEST(Json, NumbersThatJsonLacksAreNull) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(JsonLine().add("a", 0.1).add("b", infinite).object(), "{\"a\": 0.1, \"b\": null}");
}

TEST(Json, ObjectsAndListsNest) {
  JsonList list = json_list(std::vector<std::string>{"x"});
  list.add(JsonLine().add("b", true)).add(std::int64_t{3});
  JsonLine all;
  all.add_list("a", list).add_object("c", JsonLine()).add_list("d", JsonList());
  EXPECT_EQ(all.text(), "{\"a\": [\"x\", {\"b\": true}, 3], \"c\": {}, \"d\": []}\n");
  EXPECT_EQ(all.lines(), "{\n  \"a\": [\"x\", {\"b\": true}, 3],\n  \"c\": {},\n  \"d\": []\n}\n");
}

}  // namespace
}  // namespace forge

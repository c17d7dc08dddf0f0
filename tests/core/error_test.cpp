#include "core/error.hpp"

#include <gtest/gtest.h>

#include "core/array.hpp"

namespace forge {
namespace {

TEST(Error, carries_code_text_and_place) {
  try {
    throw BadInput("train.steps must be at least 1");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_input);
    EXPECT_STREQ(e.what(), "train.steps must be at least 1");
    EXPECT_NE(e.where().find("error_test.cpp:"), std::string::npos);
  }
  EXPECT_EQ(IoFailed("x").code(), ExitCode::io_failed);
  EXPECT_EQ(Error("x").code(), ExitCode::internal);
}

TEST(Error, require) {
  EXPECT_NO_THROW(require(true, "holds"));
  EXPECT_THROW(require(false, "doesn't hold"), Error);
}

TEST(Array, compares_and_iterates) {
  constexpr Array<int, 3> a{{1, 2, 3}};
  EXPECT_TRUE((a == Array<int, 3>{{1, 2, 3}}));
  EXPECT_FALSE((a == Array<int, 3>{{1, 2, 4}}));
  int sum = 0;
  for (const int x : a) sum += x;
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(a.size(), 3);
}

}  // namespace
}  // namespace forge

#include "core/error.hpp"

#include <gtest/gtest.h>

#include "core/array.hpp"
#include "core/file_errors.hpp"

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

TEST(Error, of_reading_names_the_file_and_the_cause) {
  const auto said = [](std::errc cause) -> std::string {
    try {
      reading([&]() -> bool {
        throw std::filesystem::filesystem_error("status", "saved/manifest.h5", std::make_error_code(cause));
      });
    } catch (const BadInput& error) {
      return error.what();
    }
    return "no BadInput";
  };
  EXPECT_EQ(said(std::errc::permission_denied), "saved/manifest.h5: Permission denied");
  EXPECT_EQ(said(std::errc::not_a_directory), "saved/manifest.h5: Not a directory");
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

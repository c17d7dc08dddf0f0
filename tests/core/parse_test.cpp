#include "core/parse.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace forge {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Parse, PartsAreOneMoreThanSeparators) {
  EXPECT_EQ(parts_of("", ','), Parts({""}));
  EXPECT_EQ(parts_of("a", ','), Parts({"a"}));
  EXPECT_EQ(parts_of("a,,bc", ','), Parts({"a", "", "bc"}));
  EXPECT_EQ(parts_of(",a,", ','), Parts({"", "a", ""}));
}

TEST(Parse, BlanksAroundATextAreLeftOut) {
  for (const char* blank : {"", " ", "\t \r\n"}) EXPECT_EQ(trimmed(blank), "");
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
}

TEST(Parse, NumbersAreWholeTexts) {
  std::int64_t whole = 0;
  EXPECT_TRUE(reads_as("-12", whole));
  EXPECT_EQ(whole, -12);
  double number = 0;
  EXPECT_TRUE(reads_as("2.5e1", number));
  EXPECT_EQ(number, 25);
  for (const char* text : {"", " 1", "1 ", "1.5", "0x1", "99999999999999999999"})
    EXPECT_FALSE(reads_as(text, whole)) << text;
}

}  // namespace
}  // namespace forge

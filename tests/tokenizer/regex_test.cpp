#include "tokenizer/regex.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "../data/files.hpp"

namespace forge {
namespace {

using namespace test;

std::vector<std::string> matches_of(const std::string& pattern, const std::string& text,
                                    RegexDialect dialect = RegexDialect::oniguruma) {
  const Regex regex(pattern, dialect, "test");
  RegexScratch scratch;
  std::vector<std::string> out;
  Regex::Match match;
  for (RegexMatches matches(regex, scratch, text); matches.next(match);)
    out.push_back(text.substr(match.begin, match.end - match.begin));
  return out;
}
using Texts = std::vector<std::string>;

TEST(Regex, WhiteSpaceIsUnicodes) {
  const std::string text = "\x0b|\xC2\x85|\xC2\xA0|\xE1\xA0\x8E|\x1c|";  // U+180E and U+001C are none
  EXPECT_EQ(matches_of("\\s", text).size(), 3u);
  EXPECT_EQ(matches_of("[^\\s|]", text).size(), 2u);
  EXPECT_EQ(matches_of("\\S", text).size(), 7u);
}

TEST(Regex, DialectsDiffer) {
  // x{n,m}+ is two quantifiers to Oniguruma.
  EXPECT_EQ(matches_of("\\d{1,3}+", "1234567"), (Texts{"1234567"}));
  EXPECT_EQ(matches_of("\\d{1,3}+", "1234567", RegexDialect::rust), (Texts{"123", "456", "7"}));
  // The end of a line, and of the text.
  EXPECT_EQ(matches_of("a$", "a\na\n").size(), 2u);
  EXPECT_EQ(matches_of("a$", "a\na\n", RegexDialect::rust).size(), 0u);
  // (?m): a dot is any character, or lines are lines.
  EXPECT_EQ(matches_of("(?m:a.)", "a\n"), (Texts{"a\n"}));
  EXPECT_EQ(matches_of("(?s:a.)", "a\n", RegexDialect::rust), (Texts{"a\n"}));
  EXPECT_EQ(matches_of("\\h", "afg-"), (Texts{"a", "f"}));
}

TEST(Regex, ClassesInClasses) {
  EXPECT_EQ(matches_of("[a-z&&[^aeiou]]+", "abcde"), (Texts{"bcd"}));
  EXPECT_EQ(matches_of("[[a-c][x-z]]+", "abxyq"), (Texts{"abxy"}));
  EXPECT_EQ(matches_of("[^\\S\\n]+", " \t\n"), (Texts{" \t"}));
  EXPECT_EQ(matches_of("[\\p{L}&&[^\\p{Han}]]+",
                       "ab\xE4\xB8\x96"
                       "c"),
            (Texts{"ab", "c"}));
  EXPECT_EQ(matches_of("[\\-a\\]]+", "a-]b"), (Texts{"a-]"}));
  EXPECT_EQ(matches_of("[\\u4e00-\\u9fa5]+", "a\xE4\xB8\x96"), (Texts{"\xE4\xB8\x96"}));
}

TEST(Regex, AnEmptyMatchBehindAMatchIsNone) {
  EXPECT_EQ(matches_of("x*", "axb"), (Texts{"", "x", ""}));
}

TEST(Regex, SaysWhatItDoesNotKnow) {
  expect_mentions(refusal([] { matches_of("\\y", "a"); }), {"test", "\\y"});
  expect_mentions(refusal([] { matches_of("\\p{Nothing}", "a"); }), {"test", "Nothing"});
  expect_mentions(refusal([] { matches_of("(a", "a"); }), {"test", "(a"});
  expect_mentions(refusal([] { matches_of("[a", "a"); }), {"test", "[a"});
  expect_mentions(refusal([] { matches_of("(?<=a+)b", "a"); }), {"test"});
}

TEST(Regex, KnowsWhatLooksBack) {
  const auto forward = [](const char* pattern) {
    return translate_pattern(pattern, RegexDialect::rust, "test").forward;
  };
  EXPECT_TRUE(forward("a+(?!b)|\\s+"));
  for (const char* pattern : {"(?<=a)b", "(?<!a)b", "^a", "a$", "\\ba", "\\Aa", "\\Ga"})
    EXPECT_FALSE(forward(pattern)) << pattern;
}

TEST(Regex, TimeThatGrowsFasterThanTheTextIsBounded) {
  const std::string text(300'000, 'a');  // many times the bound, on any machine
  expect_mentions(refusal([&] { matches_of("a(?=.*b)|.", text); }), {"test", "grows faster than the text"});
  expect_mentions(refusal([&] { matches_of("(a+)+$", std::string(60, 'a') + "b"); }), {"test", "61 bytes"});
  // Short texts one behind the other are texts of their own.
  EXPECT_EQ(matches_of("a+|b", "aab"), (Texts{"aa", "b"}));
}

}  // namespace
}  // namespace forge

#include "config/contents.hpp"

#include <gtest/gtest.h>

namespace forge {
namespace {

using namespace std::string_literals;

TEST(Contents, AreKnownByTheirFirstBytes) {
  const std::pair<std::string, const char*> cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"},
      {"\x1F\x8B\x08\0\0\0\0\0\0\x03"s, "gzip"},
      {"\x28\xB5\x2F\xFD\x04"s, "zstd"},
      {"BZh91AY&SY"s, "bzip2"},
      {"\xFD\x37zXZ\0\0"s, "xz"},
      {"PK\x03\x04\x14\0\0\0\x08\0"s, "ZIP"},
      {"PAR1\x15\x04"s, "Parquet"},
      {"ARROW1\0\0"s, "Arrow"},
      {"\xFF\xFF\xFF\xFF\x78\x01\0\0\x10\0\0\0"s, "Arrow"},
      {"%PDF-1.7\n"s, "PDF"},
      {"\x7F"
       "ELF\x02\x01\x01\0"s,
       "ELF"},
      {"\x89PNG\r\n\x1A\n"s, "PNG"},
      {"\xFF\xD8\xFF\xE0\0\x10JFIF"s, "JPEG"},
      {"\x80\x04\x95\x20\x1F\0\0\0\0\0\0]"s, "pickle"},
      {"\x40\0\0\0\0\0\0\0{\"a\":1}"s, "safetensors"},
      {std::string(257, 'a') + "ustar", "tar"}};
  for (const auto& [head, name] : cases) EXPECT_NE(known_contents(head).find(name), std::string::npos) << name;
  for (const std::string& text :
       {"PK is short for"s, "PAR1 and PAR2"s, "BZh9 is no text"s, ""s, "Rar"s, "\x1F\x8B\x08\xFF"s})
    EXPECT_EQ(known_contents(text), "") << text;
}

TEST(Contents, PagesAreForeignToFilesOfOtherThings) {
  EXPECT_NE(known_foreign_contents("\n <!DOCTYPE html><html>").find("HTML"), std::string::npos);
  EXPECT_NE(known_foreign_contents("<HTML lang=en>").find("HTML"), std::string::npos);
  EXPECT_EQ(known_contents("<!DOCTYPE html>"), "");
  EXPECT_EQ(known_foreign_contents("{\"a\": \"<html>\"}"), "");
}

TEST(Contents, WideTextIsToldByItsMarkOrItsZeros) {
  EXPECT_EQ(wide_text("\xFF\xFE"
                      "a\0b\0"s),
            "UTF-16 text");
  EXPECT_EQ(wide_text("\xFE\xFF\0a\0b"s), "UTF-16 text");
  EXPECT_EQ(wide_text("\xFF\xFE\0\0a\0\0\0"s), "UTF-32 text");
  EXPECT_EQ(wide_text("h\0e\0l\0l\0o\0 \0t\0h\0e\0r\0e\0"s), "UTF-16 text");
  EXPECT_EQ(wide_text("\0h\0e\0l\0l\0o\0 \0t\0h\0e\0r\0e"s), "UTF-16 text");
  EXPECT_EQ(wide_text("h\0\0\0e\0\0\0l\0\0\0"s), "UTF-32 text");
  EXPECT_EQ(wide_text("hello there"), "");
  EXPECT_EQ(wide_text(std::string(100, '\0')), "");
}

TEST(Contents, TextHasNoZerosAndNoBrokenCharacters) {
  EXPECT_TRUE(is_text("a,b\n\xC3\xA9\t\r\n"));
  EXPECT_TRUE(is_text("\xA9 the first and the last one may be cut \xE6\x97"));
  EXPECT_FALSE(is_text("a\0b"s));
  EXPECT_FALSE(is_text("a\x01"));
  EXPECT_FALSE(is_text("a \xFF b"));
  EXPECT_FALSE(is_text("a \xC3( b"));
  // Ids in two bytes: of a byte vocabulary, and of one whose bytes sweep all values.
  std::string ids;
  for (int id = 32; id < 127; ++id) ids += {static_cast<char>(id), '\0'};
  EXPECT_FALSE(is_text(ids));
}

}  // namespace
}  // namespace forge

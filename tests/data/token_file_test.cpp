#include "data/token_file.hpp"

#include <sys/stat.h>

#include "data/token_set.hpp"
#include "files.hpp"

namespace forge {
namespace {

using namespace test;

TokenSetOptions options(std::vector<std::string> files, TokenType dtype, std::int64_t length, std::int64_t vocabulary) {
  return {std::move(files), dtype, length, vocabulary, -1};
}

TEST(TokenFile, ReadsRawFilesOfBothTypesInAwkwardPieces) {
  const Directory dir;
  const std::size_t n = 20011;  // a prime, more than two pieces of a read
  write_tokens(dir / "a.bin", counting<std::uint16_t>(n));
  write_tokens(dir / "b.bin", counting<std::uint32_t>(n));
  for (const auto& [name, type] : {std::pair{"a.bin", TokenType::uint16}, {"b.bin", TokenType::uint32}}) {
    const TokenFile file = TokenFile::open(dir / name, type);
    ASSERT_EQ(file.tokens(), static_cast<std::int64_t>(n));
    for (const std::size_t first : {0ul, 1ul, 4095ul, 8191ul, n - 1})
      for (const std::size_t count : {0ul, 1ul, 3ul, 4097ul, 8193ul, n}) {
        if (first + count > n) continue;
        std::vector<std::int32_t> out(count);
        file.read(static_cast<std::int64_t>(first), out, static_cast<std::int64_t>(n));
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<std::int32_t>(first + i));
      }
    std::vector<std::int32_t> out(2);
    EXPECT_THROW(file.read(static_cast<std::int64_t>(n) - 1, out, 65536), Error);
  }
}

TEST(TokenFile, NamesTheTokenThatIsOutsideTheVocabulary) {
  const Directory dir;
  auto tokens = counting<std::uint32_t>(9000, 100);
  tokens[8500] = 4000000000u;  // negative as int32
  write_tokens(dir / "a.bin", tokens);
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenType::uint32);
  std::vector<std::int32_t> out(8500);
  file.read(0, out, 100);
  out.resize(600);
  expect_mentions(refusal([&] { file.read(8000, out, 100); }),
                  {"a.bin", "token 8500", "byte offset 34000", "4000000000", "vocabulary of 100"});
  expect_mentions(refusal([&] { file.read(0, out, 99); }), {"token 99 ", "byte offset 396", "vocabulary of 99"});
}

TEST(TokenFile, RefusesWhatIsNoTokenFile) {
  const Directory dir;
  write_text(dir / "odd.bin", "12345");
  expect_mentions(refusal([&] { TokenFile::open(dir / "odd.bin", TokenType::uint16); }),
                  {"odd.bin", "5 bytes", "multiple of 2", "byte offset 4"});
  expect_mentions(refusal([&] { TokenFile::open(dir / "odd.bin", TokenType::uint32); }), {"multiple of 4"});
  expect_mentions(refusal([&] { TokenFile::open(dir / "none.bin", TokenType::uint16); }), {"none.bin", "No such file"});
  expect_mentions(refusal([&] { TokenFile::open(dir.path().string(), TokenType::uint16); }), {"not a regular file"});
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_mentions(refusal([&] { TokenFile::open(dir / "pipe", TokenType::uint16); }), {"not a regular file"});
  write_text(dir / "a.bin", "1234");
  expect_mentions(refusal([&] { TokenFile::open(dir / "a.bin", TokenType::none); }), {"data.dtype", "never guessed"});
  write_text(dir / "hidden.bin", npy(counting<std::uint16_t>(8), "<u2"));
  expect_mentions(refusal([&] { TokenFile::open(dir / "hidden.bin", TokenType::uint16); }), {".npy"});
}

TEST(TokenFile, TextIsRefusedAndIdsAreNot) {
  const Directory dir;
  const auto opens = [&](const std::string& name, const std::string& bytes, TokenType type = TokenType::uint16) {
    write_text(dir / name, bytes);
    TokenFile::open(dir / name, type);
  };
  const auto refuse = [&](const std::string& name, const std::string& bytes, const std::string& word) {
    for (const TokenType type : {TokenType::uint16, TokenType::uint32, TokenType::none})
      expect_mentions(refusal([&] { opens(name, bytes, type); }), {name, word});
  };
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The quick brown fox, " + std::to_string(i) + ".\n";
  refuse("a.bin", text, "forge tokenize");
  refuse("a.csv", "a,b\n", "forge tokenize");
  refuse("tokenizer.json", "{\"a\": 1}\n", "forge tokenize");
  refuse("a.bin",
         "Gr\xC3\xBC\xC3\x9F"
         "e, " +
             text,
         "forge tokenize");
  refuse("a.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "Git LFS");
  refuse("a.bin", "<!DOCTYPE html><html>", "HTML");
  refuse("a.npy", "version https://git-lfs.github.com/spec/v1\n", "Git LFS");
  refuse("a.bin", std::string("\x1F\x8B\x08\0\0\0\0\0\0\x03", 10), "gzip");
  refuse("raw.npy", std::string(800, '\1'), "a name that ends in .bin");
  // Ids: of a byte vocabulary, of one that has all letters in its higher bytes, few of them that happen to be letters.
  std::string ids;
  for (int i = 0; i < 2000; ++i) ids += {static_cast<char>(32 + i % 90), '\0'};
  opens("a.bin", ids);
  opens("a.txt", ids);
  ids.clear();
  for (int i = 0; i < 2000; ++i) ids += {static_cast<char>(i % 256), 'a'};
  opens("a.bin", ids);
  opens("a.bin", "abcdefgh");
  opens("a.bin", std::string(2000, ' '));
  opens("a.bin", "");
}

TEST(TokenFile, AFileThatShrinksIsRefused) {
  const Directory dir;
  write_tokens(dir / "a.bin", counting<std::uint16_t>(100));
  const TokenFile file = TokenFile::open(dir / "a.bin", TokenType::uint16);
  std::filesystem::resize_file(dir / "a.bin", 50);
  std::vector<std::int32_t> out(100);
  expect_mentions(refusal([&] { file.read(0, out, 100); }), {"a.bin", "ends at byte 50"});
}

TEST(TokenSet, SamplesFollowTheFilesAndDropTails) {
  const Directory dir;
  // T = 5: files of 6, 10, 11 and 23 tokens hold 1, 1, 2 and 4 samples.
  const std::vector<std::size_t> sizes{6, 10, 11, 23};
  const std::vector<std::int64_t> samples{1, 1, 2, 4};
  std::vector<std::string> files;
  for (std::size_t f = 0; f < sizes.size(); ++f) {
    std::vector<std::uint16_t> tokens(sizes[f]);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(100 * f + i);
    files.push_back(dir / (std::to_string(f) + ".bin"));
    write_tokens(files.back(), tokens);
  }
  const TokenSet set(options(files, TokenType::uint16, 5, 400));
  EXPECT_EQ(set.samples(), 8);
  EXPECT_EQ(set.tokens(), 50);
  std::int64_t sample = 0;
  for (std::size_t f = 0; f < samples.size(); ++f)
    for (std::int64_t i = 0; i < samples[f]; ++i, ++sample) {
      const TokenSet::SamplePosition place = set.locate(sample);
      EXPECT_EQ(place.file, f);
      EXPECT_EQ(place.sample, i);
      std::vector<std::int32_t> out(6);
      set.read(sample, out);
      for (std::size_t t = 0; t < 6; ++t)
        EXPECT_EQ(out[t], static_cast<std::int32_t>(100 * f + 5 * static_cast<std::size_t>(i) + t));
    }
  EXPECT_THROW(set.locate(8), Error);
  EXPECT_THROW(set.locate(-1), Error);
}

TEST(TokenSet, MixesRawAndNpyFiles) {
  const Directory dir;
  write_text(dir / "a.npy", npy(counting<std::uint16_t>(4), "<u2"));
  write_text(dir / "b.npy", npy(counting<std::int64_t>(7), "<i8"));
  const TokenSet set(options({dir / "a.npy", dir / "b.npy"}, TokenType::none, 3, 16));
  EXPECT_EQ(set.samples(), 3);
  std::vector<std::int32_t> out(4);
  set.read(2, out);
  EXPECT_EQ(out, (std::vector<std::int32_t>{3, 4, 5, 6}));
}

TEST(TokenSet, ReportsEveryBadFileAtOnce) {
  const Directory dir;
  write_tokens(dir / "short.bin", counting<std::uint16_t>(8));
  write_text(dir / "odd.bin", "123");
  write_tokens(dir / "good.bin", counting<std::uint16_t>(9));
  const auto files = {dir / "short.bin", dir / "missing.bin", dir / "good.bin", dir / "odd.bin"};
  const std::string text = refusal([&] { TokenSet(options(files, TokenType::uint16, 8, 16)); });
  expect_mentions(text, {"short.bin", "8 + 1 tokens", "holds 8", "byte offset 16", "missing.bin", "odd.bin"});
  EXPECT_EQ(text.find("good.bin"), std::string::npos);
  EXPECT_EQ(TokenSet(options({dir / "good.bin"}, TokenType::uint16, 8, 16)).samples(), 1);
  TokenSetOptions masked = options({dir / "missing.bin", dir / "good.bin"}, TokenType::uint16, 8, 16);
  masked.mask_files = {dir / "no.npy", dir / "nor.npy"};  // also that of a file that is missing
  expect_mentions(refusal([&] { const TokenSet set(masked); }), {"missing.bin", "no.npy", "nor.npy"});
}

TEST(TokenSet, RefusesImpossibleOptions) {
  const Directory dir;
  write_tokens(dir / "a.bin", counting<std::uint16_t>(9));
  TokenSetOptions good = options({dir / "a.bin"}, TokenType::uint16, 8, 16);
  TokenSetOptions none = good, empty = good, end = good;
  none.files.clear();
  empty.sequence_tokens = 0;
  end.document_end_token = 16;
  expect_mentions(refusal([&] { TokenSet{none}; }), {"data.files"});
  expect_mentions(refusal([&] { TokenSet{empty}; }), {"train.sequence_tokens"});
  expect_mentions(refusal([&] { TokenSet{end}; }), {"data.document_end_token", "16"});
}

}  // namespace
}  // namespace forge

#include "text/tokenize.hpp"

#include <algorithm>

#include "data/token_set.hpp"
#include "files.hpp"

namespace forge {
namespace {

using namespace test;

constexpr std::int32_t end = byte_document_end;

// The ids of some texts; a byte stands for itself, and `end` for itself in `expected`.
std::vector<std::int32_t> tokens_of(const std::vector<std::string>& texts, DocumentEnd document_end,
                                    TokenizeResult* result = nullptr) {
  const Directory dir;
  TokenizeOptions options{{}, dir / "out.bin", document_end};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    options.inputs.push_back(dir / (std::to_string(i) + ".txt"));
    write_text(options.inputs.back(), texts[i]);
  }
  const TokenizeResult got = tokenize_bytes(options);
  if (result != nullptr) *result = got;
  EXPECT_FALSE(std::filesystem::exists(dir / "out.bin.partial"));
  const TokenFile file = TokenFile::open(dir / "out.bin", TokenType::uint16);
  EXPECT_EQ(file.tokens(), got.tokens);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
  file.read(0, ids, byte_vocabulary + (document_end == DocumentEnd::none ? 0 : 1));
  EXPECT_EQ(file.tokens() - std::ranges::count(ids, byte_document_end), got.bytes);
  return ids;
}

// '|' is a document end.
std::string with_ends(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += id == end ? '|' : static_cast<char>(id);
  return text;
}

TEST(Tokenize, EveryByteIsItsOwnToken) {
  std::string text;
  for (int round = 0; round < 700; ++round)  // more than two pieces
    for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  TokenizeResult result;
  const auto ids = tokens_of({text}, DocumentEnd::none, &result);
  ASSERT_EQ(ids.size(), text.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<std::int32_t>(i % 256));
  EXPECT_EQ(result.bytes, 256 * 700);
  EXPECT_EQ(result.documents, 0);
}

TEST(Tokenize, DocumentsEndBehindFiles) {
  TokenizeResult result;
  EXPECT_EQ(with_ends(tokens_of({"a\n\nb", "", "c\n"}, DocumentEnd::file, &result)), "a\n\nb|c\n|");
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.bytes, 6);
  EXPECT_EQ(result.tokens, 8);
  EXPECT_EQ(with_ends(tokens_of({"a", "b"}, DocumentEnd::none)), "ab");
}

TEST(Tokenize, DocumentsEndBehindBlankLines) {
  const auto split = [](const std::vector<std::string>& texts) {
    return with_ends(tokens_of(texts, DocumentEnd::blank_lines));
  };
  EXPECT_EQ(split({"a\nb\n\n\nc\n\n d\n"}), "a\nb\n\n\n|c\n\n| d\n|");
  EXPECT_EQ(split({"\n\na\n"}), "\n\na\n|");
  EXPECT_EQ(split({"a\r\n\r\nb\r\n"}), "a\r\n\r\n|b\r\n|");
  EXPECT_EQ(split({"a\n", "b\n\n", "\nc"}), "a\n|b\n\n|\nc|");
  EXPECT_EQ(split({"\n\n\n"}), "\n\n\n");
}

TEST(Tokenize, BlankLinesAreFoundAcrossPieces) {
  for (const std::size_t shift : {65533u, 65534u, 65535u, 65536u, 65537u}) {
    const std::string text = std::string(shift, 'x') + "\n\ny";
    EXPECT_EQ(with_ends(tokens_of({text}, DocumentEnd::blank_lines)), std::string(shift, 'x') + "\n\n|y|");
  }
}

TEST(Tokenize, ReplacesTheOutputOnlyWhenItIsComplete) {
  const Directory dir;
  write_text(dir / "a.txt", "abc");
  write_text(dir / "out.bin", "old");
  write_text(dir / "empty.txt", "");
  expect_mentions(refusal([&] { tokenize_bytes({{dir / "a.txt", dir / "none.txt"}, dir / "out.bin"}); }), {"none.txt"});
  expect_mentions(refusal([&] { tokenize_bytes({{dir / "empty.txt"}, dir / "out.bin"}); }), {"empty"});
  EXPECT_EQ(read_text(dir / "out.bin"), "old");
  EXPECT_FALSE(std::filesystem::exists(dir / "out.bin.partial"));
  EXPECT_EQ(tokenize_bytes({{dir / "a.txt"}, dir / "out.bin"}).tokens, 3);
  EXPECT_EQ(read_text(dir / "out.bin"), std::string("a\0b\0c\0", 6));
}

TEST(Tokenize, RefusesImpossibleNames) {
  const Directory dir;
  write_text(dir / "a.txt", "abc");
  expect_mentions(refusal([&] { tokenize_bytes({{}, dir / "out.bin"}); }), {"no text file"});
  expect_mentions(refusal([&] { tokenize_bytes({{dir / "a.txt"}, ""}); }), {"output"});
  expect_mentions(refusal([&] { tokenize_bytes({{dir / "a.txt"}, dir / "a.npy"}); }), {"a.npy"});
  expect_mentions(refusal([&] { tokenize_bytes({{dir / "a.txt"}, dir / "a.txt"}); }), {"a.txt", "output"});
  EXPECT_EQ(read_text(dir / "a.txt"), "abc");
  expect_mentions(refusal([&] {
                    tokenize_bytes({{dir / "a.txt"}, dir / "a.txt/out.bin"});
                  }),
                  {"a.txt", "is a file, or a link to nothing; legal: directories"});
}

TEST(Tokenize, MakesTheDirectoriesOfItsOutput) {
  const Directory dir;
  write_text(dir / "a.txt", "abc");
  write_text(dir / "empty.txt", "");
  EXPECT_THROW(tokenize_bytes({{dir / "empty.txt"}, dir / "no/such/out.bin"}), BadInput);
  EXPECT_FALSE(std::filesystem::exists(dir / "no"));
  EXPECT_EQ(tokenize_bytes({{dir / "a.txt"}, dir / "no/such/out.bin"}).tokens, 3);
  EXPECT_TRUE(std::filesystem::exists(dir / "no/such/out.bin"));
}

TEST(Tokenize, CountsWhatIsNoUtf8) {
  const Directory dir;
  // A character that lies across two pieces is one.
  write_text(dir / "a.txt", std::string(65535, 'x') + "\xC3\xA9");
  EXPECT_EQ(tokenize_bytes({{dir / "a.txt"}, dir / "a.bin"}).ill_formed.bytes, 0);
  write_text(dir / "b.txt", std::string(65535, 'x') + "\xC3y\xFF");
  const IllFormedBytes found = tokenize_bytes({{dir / "a.txt", dir / "b.txt"}, dir / "b.bin"}).ill_formed;
  EXPECT_EQ(found.bytes, 2);
  EXPECT_EQ(found.of, 65537 + 65538);
  EXPECT_EQ(found.first, dir / "b.txt" + ", byte 65535");
}

TEST(Tokenize, StaleFilesBesideTheOutputAreRemoved) {
  const Directory dir;
  write_text(dir / "a.txt", "abc");
  for (const char* name : {"o.bin.partial", "o.bin.progress", "o.bin.progress.new"})
    write_text(dir / name, "left over");
  tokenize_bytes({{dir / "a.txt"}, dir / "o.bin"});
  for (const char* name : {"o.bin.partial", "o.bin.progress", "o.bin.progress.new"})
    EXPECT_FALSE(std::filesystem::exists(dir / name)) << name;
  write_text(dir / "victim", "kept");
  std::filesystem::create_symlink(dir / "victim", dir / "p.bin.partial");
  tokenize_bytes({{dir / "a.txt"}, dir / "p.bin"});
  EXPECT_EQ(read_text(dir / "victim"), "kept");
}

}  // namespace
}  // namespace forge

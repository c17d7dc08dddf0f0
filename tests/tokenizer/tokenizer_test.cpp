#include "tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../data/files.hpp"
#include "tokenizer/json_parts.hpp"
#include "tokenizer/parallel_encoder.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/unicode.hpp"

namespace forge {
namespace {

using namespace test;

const std::string data = "tests/tokenizer/data/";

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> texts() {
  std::vector<std::string> out;
  for (const std::string& line : lines_of(data + "texts.base64")) {
    std::string bytes;
    EXPECT_TRUE(decode_base64(line, bytes));
    out.push_back(replace_ill_formed(bytes));
  }
  return out;
}

std::vector<std::int32_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids;
  Encoder(tokenizer).encode(text, ids);
  return ids;
}

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(data))
    if (entry.is_directory()) found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Tokenizer, GivesTheIdsOfTheLibraries) {
  const auto all = texts();
  ASSERT_GE(all.size(), 60u);
  ASSERT_GE(names().size(), 11u);
  for (const std::string& name : names()) {
    const Tokenizer tokenizer = Tokenizer::open(data + name);
    const auto expected = lines_of(data + name + "/expected.ids");
    ASSERT_EQ(expected.size(), all.size()) << name;
    Encoder encoder(tokenizer);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<std::int32_t> ids, wanted;
      encoder.encode(all[i], ids);
      std::istringstream in(expected[i]);
      for (std::int32_t id; in >> id;) wanted.push_back(id);
      ASSERT_EQ(ids, wanted) << name << ", text " << i;
    }
  }
}

// However a long text is dealt out, and whatever the threads, the ids are those of one encoder.
TEST(Tokenizer, PartsOfALongTextChangeNoId) {
  std::string text;
  for (int round = 0; round < 24; ++round)
    for (const std::string& line : texts()) text += line + (round % 3 == 0 ? "\n" : " ");
  text +=
      std::string(70'000, ' ') + "x" + std::string(70'000, 'a') + "\n" + std::string(40'000, '7') + " and more text";
  for (const std::string& name : names()) {
    const Tokenizer tokenizer = Tokenizer::open(data + name);
    const auto expected = ids_of(tokenizer, text);
    ParallelEncoder encoder(tokenizer, 3);
    for (const std::size_t chunk : {std::size_t{1} << 12, std::size_t{20'011}, std::size_t{1} << 16}) {
      std::vector<std::int32_t> ids;
      encoder.encode(text, ids, chunk);
      ASSERT_EQ(ids, expected) << name << ", chunks of " << chunk;
    }
  }
}

TEST(Tokenizer, ByteLevelTextsComeBack) {
  for (const char* name : {"gpt2", "llama3", "deepseek", "tiktoken_cl100k"}) {
    const Tokenizer tokenizer = Tokenizer::open(data + name);
    for (const std::string& text : texts()) {
      if (text.find("<|endoftext|>") != std::string::npos) continue;  // special: says nothing to a reader
      EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, text)), text) << name;
    }
  }
}

TEST(Tokenizer, AStreamPrintsWhatDecodingTheWholeDoes) {
  for (const std::string& name : names()) {
    const Tokenizer tokenizer = Tokenizer::open(data + name);
    std::string all;
    for (const std::string& text : texts()) all += text;
    const auto ids = ids_of(tokenizer, all);
    TextStream stream(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) text += stream.add(id);
    text += stream.finish();
    EXPECT_EQ(text, tokenizer.decode(ids)) << name;
  }
}

TEST(Tokenizer, NamesThePartThatIsNotAvailable) {
  const auto refuse = [](const std::string& json, const std::vector<std::string>& words) {
    expect_mentions(refusal([&] { read_tokenizer_json(json, "f.json"); }), words);
  };
  const std::string model = R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": []})";
  EXPECT_NO_THROW(read_tokenizer_json("{" + model + "}", "f.json"));
  refuse("{", {"f.json", "not JSON"});
  refuse("{}", {"f.json", "model"});
  refuse(R"({"model": {"type": "WordPiece", "vocab": {}}})", {"f.json: model", "WordPiece", "BPE | Unigram"});
  refuse(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})", {"vocab", "-1"});
  refuse(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})", {"merges[0]", "'b'"});
  refuse(R"({"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}})", {"dropout"});
  refuse(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "X"}]}, )" + model + "}",
         {"normalizers[0]", "X"});
  refuse(R"({"pre_tokenizer": {"type": "UnicodeScripts"}, )" + model + "}", {"pre_tokenizer", "UnicodeScripts"});
  refuse(
      R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a("}, "behavior": "Isolated", "invert": false}, )" +
          model + "}",
      {"pre_tokenizer", "a("});
  refuse(R"({"decoder": {"type": "CTC"}, )" + model + "}", {"decoder", "CTC"});
  refuse(R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, )" + model + "}", {"normalizer"});
}

TEST(Tokenizer, RefusesBrokenFiles) {
  expect_mentions(refusal([] { read_tiktoken("IQ== x\n", "f", "a"); }), {"f:1"});
  expect_mentions(refusal([] { read_tiktoken("IQ== 0\n", "f", "a"); }), {"f: no tiktoken file", "byte 0"});
  expect_mentions(refusal([] { read_sentencepiece("\n\xff", "f"); }), {"f: no SentencePiece model"});
  expect_mentions(refusal([] { Tokenizer::open("tests/tokenizer"); }), {"tests/tokenizer", "tokenizer.json"});
  const std::string whole = read_text(data + "llama2_model/tokenizer.model");
  ASSERT_NO_THROW(read_sentencepiece(whole, "f"));
  for (std::size_t cut = 1; cut < 400; cut += 7) EXPECT_THROW(read_sentencepiece(whole.substr(0, cut), "f"), BadInput);
}

TEST(Utf8, IllFormedPartsAreReplacedAsPythonDoes) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_ill_formed("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(replace_ill_formed("\xE2\x82"), r);
  EXPECT_EQ(replace_ill_formed("\xE2\x28\xA1"), r + "(" + r);
  EXPECT_EQ(replace_ill_formed("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_ill_formed("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_ill_formed("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replace_ill_formed("\xC0\xAF"), r + r);
}

}  // namespace
}  // namespace forge

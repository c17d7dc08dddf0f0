// Directories with files that name added tokens beside a tokenizer.json or a tokenizer.model, drawn by
// compare_directories.py, with the ids that transformers' AutoTokenizer gave.
#include <algorithm>
#include <ctime>
#include <filesystem>

#include "../data/files.hpp"
#include "hf/json_input.hpp"
#include "tokenizer/files.hpp"
#include "tokenizer/json_parts.hpp"
#include "tokenizer/tokenizer.hpp"

namespace forge {
namespace {

using namespace test;

TEST(Directories, GiveTheIdsOfTransformers) {
  const auto cases = nlohmann::json::parse(read_text("tests/tokenizer/data/directories.json"));
  ASSERT_GE(cases["cases"].size(), 30u);
  for (std::size_t number = 0; number < cases["cases"].size(); ++number) {
    const auto& drawn = cases["cases"][number];
    const auto& base = cases["bases"][drawn["base"].get<std::string>()];
    const Directory dir;
    std::string main = base["text"].get<std::string>();
    const std::string name = base["file"].get<std::string>();
    if (name == "tokenizer.model") {
      std::string bytes;
      ASSERT_TRUE(decode_base64(main, bytes));
      main = bytes;
    }
    write_text(dir / name, main);
    for (const auto& [file, text] : drawn["files"].items()) write_text(dir / file, text.get<std::string>());
    const Tokenizer tokenizer = Tokenizer::open(dir.path().string());
    Encoder encoder(tokenizer);
    for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
      std::vector<std::int32_t> ids;
      encoder.encode(cases["texts"][i].get<std::string>(), ids);
      EXPECT_EQ(ids, drawn["ids"][i].get<std::vector<std::int32_t>>())
          << "case " << number << ", " << cases["texts"][i] << "\n"
          << drawn["files"].dump();
    }
  }
}

TEST(Directories, ListTheFilesOfTheirTokenizer) {
  const Directory dir;
  std::filesystem::create_directories(dir / "additional_chat_templates");
  const std::vector<std::string> parts{"added_tokens.json", "chat_template.jinja", "spiece.model", "tokenization_x.py",
                                       "tokenizer_config.json"};
  for (const std::string& name : parts) write_text(dir / name, "x");
  for (const char* name : {"config.json", "model.safetensors", "README.md", "modeling_x.py"})
    write_text(dir / name, "x");
  write_text(dir / "additional_chat_templates/tools.jinja", "x");
  std::vector<std::string> found;
  for (const std::string& file : tokenizer_files(dir.path().string()))
    found.push_back(std::filesystem::path(file).lexically_relative(dir.path()));
  std::vector<std::string> expected = parts;
  expected.push_back("additional_chat_templates/tools.jinja");
  EXPECT_EQ(found, expected);
  EXPECT_EQ(main_tokenizer_file(dir.path().string()), dir / "spiece.model");
  write_text(dir / "q.tiktoken", "x");
  write_text(dir / "q.tiktoken.pattern", "x");
  EXPECT_EQ(tokenizer_files(dir / "q.tiktoken"),
            (std::vector<std::string>{dir / "q.tiktoken", dir / "q.tiktoken.pattern"}));
  EXPECT_EQ(main_tokenizer_file(dir.path().string()), dir / "q.tiktoken");
  EXPECT_FALSE(has_tokenizer(dir / "additional_chat_templates"));
  EXPECT_FALSE(has_tokenizer(dir / "none"));
}

nlohmann::json small_bpe() {
  return {{"added_tokens", nlohmann::json::array()},
          {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", nlohmann::json::array()}}}};
}

std::vector<std::int32_t> ids_of(const nlohmann::json& root, const std::string& text) {
  const Directory dir;
  write_text(dir / "tokenizer.json", root.dump());
  const Tokenizer tokenizer = Tokenizer::open(dir / "tokenizer.json");
  std::vector<std::int32_t> ids;
  Encoder(tokenizer).encode(text, ids);
  return ids;
}

// As the library, which says "Unk token `<unk>` not found in the vocabulary" where it needs it.
TEST(Directories, AnUnknownTokenOutsideTheVocabularyIsRefusedWhereItIsNeeded) {
  nlohmann::json root = small_bpe();
  root["model"]["unk_token"] = "<unk>";
  root["added_tokens"] = {{{"id", 2}, {"content", "<unk>"}, {"special", true}}};
  EXPECT_EQ(ids_of(root, "ab<unk>"), (std::vector<std::int32_t>{0, 1, 2}));
  expect_mentions(refusal([&] { ids_of(root, "axb"); }), {"unk_token", "<unk>", "'x'"});
  root["model"]["unk_token"] = nullptr;
  EXPECT_EQ(ids_of(root, "axb"), (std::vector<std::int32_t>{0, 1}));
}

TEST(Directories, ManyAddedTokensTakeLinearTime) {
  nlohmann::json root = small_bpe();
  for (int i = 0; i < 60'000; ++i)
    root["added_tokens"].push_back({{"id", 2 + i}, {"content", "<" + std::to_string(i) + ">"}, {"special", true}});
  const std::clock_t start = std::clock();
  EXPECT_EQ(ids_of(root, "<59999>a"), (std::vector<std::int32_t>{60'001, 0}));
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 15);
}

TEST(Directories, WhiteSpaceThatTokensTakeIsReadOnce) {
  nlohmann::json root = small_bpe();
  root["added_tokens"] = {{{"id", 2}, {"content", " "}, {"special", true}, {"lstrip", true}},
                          {{"id", 3}, {"content", "\t"}, {"special", true}, {"rstrip", true}}};
  const std::clock_t start = std::clock();
  ids_of(root, std::string(1 << 20, ' ') + std::string(1 << 20, '\t'));
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 15);
}

}  // namespace
}  // namespace forge

#include "config/path_hint.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace forge {
namespace {

namespace fs = std::filesystem;

std::string hint(const std::string& path) {
  return path_hint(path, PathUse::file);
}

TEST(PathHint, SaysWhyAPathNamesNothing) {
  const std::pair<const char*, const char*> cases[] = {{"", "empty"},
                                                       {"~/x.bin", "~ is not expanded"},
                                                       {"~", "~ is not expanded"},
                                                       {"$HOME/x.bin", "variables are not expanded"},
                                                       {"/data/${USER}/x", "variables are not expanded"},
                                                       {"https://host/x.bin", "URLs are not fetched"},
                                                       {"s3://bucket/x.bin", "URLs are not fetched"},
                                                       {"hf://datasets/x", "URLs are not fetched"},
                                                       {"https:/host/x.bin", "URLs are not fetched"},
                                                       {"data/*.bin", "patterns are not expanded"},
                                                       {"data/part?.bin", "patterns are not expanded"},
                                                       {"data/[ab].bin", "patterns are not expanded"},
                                                       {"data/{a,b}.bin", "patterns are not expanded"}};
  for (const auto& [path, text] : cases) {
    EXPECT_NE(hint(path).find(text), std::string::npos) << path << ": " << hint(path);
    EXPECT_EQ(hint(path).rfind("; ", 0), 0u) << path;
  }
}

TEST(PathHint, NamesTheWorkingDirectoryOfARelativePath) {
  EXPECT_EQ(hint("no/such.bin"), "; looked for in the working directory, " + fs::current_path().string());
  EXPECT_EQ(hint("/no/such.bin"), "");
  EXPECT_EQ(hint("."), "");
}

TEST(PathHint, NamesAFileOfNearlyTheSameName) {
  const fs::path folder = fs::temp_directory_path() / ("near_file_" + std::to_string(::getpid()));
  fs::create_directories(folder / "step_00000004");
  std::ofstream(folder / "deck.yaml") << "x";
  std::ofstream(folder / "train.bin") << "x";
  const auto near = [&](const std::string& name) { return fs::path(near_file((folder / name).string())).filename(); };
  for (const char* name : {"deck.yml", "DECK.YAML", "dekc.yaml", "deck.yaml ", "deck"})
    EXPECT_EQ(near(name), "deck.yaml") << name;
  EXPECT_EQ(near("step_00000005"), "step_00000004");
  for (const char* name : {"valid.bin", "zebra.yaml", "brain.bin", "x"}) EXPECT_EQ(near(name), "") << name;
  EXPECT_NE(hint((folder / "Train.bin").string()).find("; did you mean " + (folder / "train.bin").string() + "?"),
            std::string::npos);
  fs::remove_all(folder);
}

TEST(PathHint, OutputsAreNamedAsTheyAreMade) {
  for (const char* path : {"~/x", "$HOME/x", "runs/${USER}", "s3://bucket/x", "-"})
    EXPECT_NE(unexpanded(path), "") << path;
  for (const char* path : {"", "runs/x", "runs/~x", "price$", "a-b", "runs/a:b"})
    EXPECT_EQ(unexpanded(path), "") << path;
}

TEST(PathHint, NamesALinkThatLeadsNowhere) {
  const fs::path link = fs::temp_directory_path() / ("path_hint_" + std::to_string(::getpid()));
  fs::create_symlink("no_such_target", link);
  EXPECT_EQ(hint(link.string()), "; it is a link to no_such_target, which isn't there");
  fs::remove(link);
}

TEST(PathHint, KnowsNamesOfTheHub) {
  for (const char* name : {"gpt2", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5", "Qwen/Qwen2.5-0.5B-Instruct", "a/b_c"}) {
    EXPECT_NE(path_hint(name).find("`hf download " + std::string(name) + "`"), std::string::npos) << path_hint(name);
    EXPECT_EQ(hint(name).find("hf download"), std::string::npos);
  }
  for (const char* name : {"/gpt2", "./gpt2", "../gpt2", "a/b/c", "model.safetensors", "data/train.bin", "a/",
                           "deck.yaml", "a b", "x.tiktoken"})
    EXPECT_EQ(path_hint(name).find("hf download"), std::string::npos) << name;
}

}  // namespace
}  // namespace forge

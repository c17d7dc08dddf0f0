#include "config/shared_files.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"

namespace forge {
namespace {

namespace fs = std::filesystem;

TEST(SharedFiles, AreFoundBelowTheWorkingDirectoryThenForgeRootThenTheSourceTree) {
  const fs::path before = fs::current_path(),
                 work = fs::temp_directory_path() / ("shared_files." + std::to_string(getpid()));
  for (const char* place : {"here/inputs/machines", "root/inputs/machines"}) fs::create_directories(work / place);
  std::ofstream(work / "root/inputs/machines/own.yaml") << "x";
  std::ofstream(work / "root/inputs/machines/both.yaml") << "x";
  std::ofstream(work / "here/inputs/machines/both.yaml") << "x";
  fs::current_path(work / "here");
  setenv("FORGE_ROOT", (work / "root").c_str(), 1);
  EXPECT_EQ(shared_file("both", "machine", "inputs/machines"), "inputs/machines/both.yaml");
  EXPECT_EQ(shared_file("own", "machine", "inputs/machines"), (work / "root/inputs/machines/own.yaml").string());
  EXPECT_EQ(shared_file("Both.yaml", "machine", "inputs/machines"), "inputs/machines/both.yaml");
  EXPECT_EQ(shared_file("a/b", "machine", "inputs/machines"), "a/b");
  EXPECT_EQ(shared_file("b.yaml", "machine", "inputs/machines"), "b.yaml");
  // This test's own program is in a build of the source tree, which has the shipped ones.
  EXPECT_TRUE(fs::exists(shared_file("h100_8", "machine", "inputs/machines")));
  try {
    shared_file("none", "machine", "inputs/machines");
    ADD_FAILURE() << "a machine that nobody has";
  } catch (const BadInput& error) {
    EXPECT_NE(std::string(error.what()).find("a100_8, b200_8, both, gb200_72"), std::string::npos) << error.what();
  }
  unsetenv("FORGE_ROOT");
  fs::current_path(before);
  fs::remove_all(work);
}

}  // namespace
}  // namespace forge

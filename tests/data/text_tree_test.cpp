#include "text/text_tree.hpp"

#include <gtest/gtest.h>

#include "files.hpp"

namespace forge {
namespace {

using test::Directory;
using test::write_text;

std::vector<std::string> names(const TextTree& tree, const Directory& dir) {
  std::vector<std::string> found;
  for (const std::string& file : tree.files)
    found.push_back(std::filesystem::path(file).lexically_relative(dir.path()));
  return found;
}

class TextTreeTest : public testing::Test {
 protected:
  TextTreeTest() {
    std::filesystem::create_directories(dir / "b/.git");
    for (const char* name :
         {"b/z.txt", "a.TXT", "c.md.gz", "b/y.rst", "b/.git/h.txt", ".hidden.txt", "d.py", "e.py", "none"})
      write_text(dir / name, "x");
    std::filesystem::create_symlink(dir / "d.py", dir / "link.txt");
    std::filesystem::create_directory_symlink(dir / "b", dir / "linked");
  }
  Directory dir;
};

TEST_F(TextTreeTest, TakesTextsInOrderAndSaysWhatIsLeft) {
  const TextTree tree = text_tree(dir.path().string(), {});
  EXPECT_EQ(names(tree, dir), (std::vector<std::string>{"a.TXT", "b/y.rst", "b/z.txt", "c.md.gz", "link.txt"}));
  for (const char* words :
       {"5 of 8 files", "3 .txt", "1 .md", "2 .py", "1 without an ending", "--ext py", "devices: 3"})
    EXPECT_NE(tree.summary.find(words), std::string::npos) << words << ": " << tree.summary;
}

TEST_F(TextTreeTest, EndingsAreChosen) {
  EXPECT_EQ(names(text_tree(dir.path().string(), read_endings(".py, MD")), dir),
            (std::vector<std::string>{"c.md.gz", "d.py", "e.py"}));
  EXPECT_EQ(text_tree(dir.path().string(), read_endings("all")).files.size(), 8u);
  for (const char* bad : {"", "txt,", "a/b", "**"}) EXPECT_THROW(read_endings(bad), BadInput) << bad;
}

TEST_F(TextTreeTest, AFolderWithoutTextsIsRefused) {
  try {
    text_tree(dir.path().string(), read_endings("csv"));
    FAIL() << "was taken";
  } catch (const BadInput& refused) {
    const std::string text = refused.what();
    for (const char* words : {"of its 8 files none", "csv", "2 .py"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace forge

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/output_file.hpp"
#include "config/output_lock.hpp"
#include "config/text.hpp"
#include "core/file_errors.hpp"

namespace forge::test {
namespace {

namespace fs = std::filesystem;

class Output : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/forge_output_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path = name;
  }
  void TearDown() override { fs::remove_all(path); }
  static std::string text_of(const fs::path& file) {
    std::ostringstream out;
    out << std::ifstream(file).rdbuf();
    return out.str();
  }
  static void put(OutputFile& file, const std::string& text) { file.file().write_at(0, text.data(), text.size()); }
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(path), {}); }
  fs::path path;
};

// Each writes a file of its own: what is there in the end is one's alone.
TEST_F(Output, WritersShareNoFile) {
  const std::string name = path / "out";
  OutputFile a(name), b(name);
  put(a, "first");
  put(b, "second, and longer");
  b.commit();
  EXPECT_EQ(text_of(name), "second, and longer");
  a.commit();
  EXPECT_EQ(text_of(name), "first");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Output, LeavesNothingThatIsNotComplete) {
  {
    OutputFile file(path / "out");
    put(file, "half");
    EXPECT_EQ(entries(), 1);
  }
  EXPECT_EQ(entries(), 0);
  OutputFile file(path / "out");
  remove_left_overs();
  EXPECT_EQ(entries(), 0);
}

TEST_F(Output, FollowsNoLink) {
  std::ofstream(path / "victim") << "mine";
  fs::create_symlink("victim", path / "own");
  EXPECT_THROW(FileHandle::open_to_write(path / "own"), IoFailed);
  EXPECT_THROW(FileHandle::open_to_append(path / "own"), BadInput);
  OutputFile file(path / "out", path / "own");
  put(file, "text");
  file.commit();
  fs::create_symlink("victim", path / ".out.lock");
  EXPECT_THROW(OutputLock(path / "out"), BadInput);
  fs::remove(path / ".out.lock");
  fs::create_hard_link(path / "victim", path / ".out.lock");
  EXPECT_THROW(OutputLock(path / "out"), BadInput);
  ASSERT_EQ(mkfifo((path / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(FileHandle::open_to_append(path / "pipe"), BadInput);
  EXPECT_EQ(text_of(path / "victim"), "mine");
  EXPECT_EQ(text_of(path / "out"), "text");
}

// One writer of an output at a time, which removes what dead ones have left, and nothing else.
TEST_F(Output, IsLocked) {
  const std::string nonce = "0123456789abcdef", name = path / "new" / "out";
  {
    const OutputLock lock(name);
    EXPECT_THROW(OutputLock{name}, BadInput);
    const OutputLock other(path / "new" / "out2");
    const OutputDirectoryLock directory(path / "new");
    EXPECT_THROW(OutputDirectoryLock{path / "new"}, BadInput);
  }
  EXPECT_FALSE(fs::exists(path / "new"));
  fs::create_directory(path / "new");
  const std::string left = name + "." + nonce + ".partial";
  for (const std::string& file : {left, name + ".partial", name + ".mine.partial", name + "2." + nonce + ".partial"})
    std::ofstream(file) << "half";
  const OutputLock lock(name);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(std::distance(fs::directory_iterator(path / "new"), {}), 4);  // and the lock
}

// Names that are too long with an ending have shorter ones, another each.
TEST_F(Output, MayHaveTheLongestName) {
  for (const char last : {'a', 'b'}) {
    const std::string name = path / (std::string(254, 'x') + last);
    const OutputLock lock(name);
    write_text_file(name, "text");
    EXPECT_EQ(text_of(name), "text");
  }
}

TEST_F(Output, ErrorsOfInputsAreOfTheirKind) {
  EXPECT_THROW(FileHandle::open_to_read(path / "none", "file"), BadInput);
  EXPECT_THROW(FileHandle::open_to_read(path / std::string(300, 'x'), "file"), BadInput);
  EXPECT_THROW(throw_input_error("open x", EACCES), NotPermitted);
  for (const int error : {EIO, ESTALE, EMFILE, ENOMEM}) EXPECT_THROW(throw_input_error("open x", error), IoFailed);
  EXPECT_THROW(throw_io_error("write", "x", EDQUOT), NoSpace);
  int calls = 0;
  const auto fails = [&](int error, int times) {
    calls = 0;
    return tried([&, error, times] {
      errno = error;
      return ++calls > times ? 0 : -1;
    });
  };
  EXPECT_EQ(fails(EIO, 2), 0);
  EXPECT_EQ(fails(ESTALE, 99), -1);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(fails(ENOENT, 99), -1);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace forge::test

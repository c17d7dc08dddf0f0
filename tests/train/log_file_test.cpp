#include "train/log_file.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"

namespace forge::test {
namespace {

namespace fs = std::filesystem;

// A file that finds no room beyond so many bytes, for as long as this lives or until it is moved.
class Room {
 public:
  explicit Room(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    set(bytes);
  }
  ~Room() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  void set(rlim_t bytes) {
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

struct LogRig {
  fs::path path = fs::temp_directory_path() / ("forge_log_" + std::to_string(getpid()));
  LogFile file;
  LogRig() { file.open(path); }
  ~LogRig() { fs::remove(path); }
  LogRig(const LogRig&) = delete;
  LogRig& operator=(const LogRig&) = delete;
  std::string text() const {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
};

std::string line(int i) {
  return std::to_string(i) + std::string(297, '.') + "\n";
}

TEST(LogFile, FailsWhereItIsNotToldToWait) {
  LogRig rig;
  Room room(700);
  rig.file.write(line(1));
  rig.file.write(line(2));
  EXPECT_THROW(rig.file.write(line(3)), IoFailed);
}

// What finds no room, a part of a line included, is written first when there is some, and nothing is said twice.
TEST(LogFile, WritesLaterWhatFails) {
  LogRig rig;
  rig.file.keep_what_fails();
  std::string all;
  {
    Room room(1000);
    for (int i = 1; i <= 9; ++i) {
      rig.file.write(line(i));
      all += line(i);
      const std::string news = rig.file.take_news();
      EXPECT_EQ(!news.empty(), i == 4) << i << news;
      const std::string begin = "writing " + rig.path.string() + " failed, the job goes on and tries again: ";
      EXPECT_EQ(news.compare(0, begin.size(), begin) == 0, i == 4) << news;
    }
    EXPECT_EQ(rig.text(), all.substr(0, 1000));
    EXPECT_THROW(rig.file.finish(), IoFailed);
    room.set(1700);
    rig.file.write(line(10));
    all += line(10);
    EXPECT_EQ(rig.text(), all.substr(0, 1700));
    EXPECT_EQ(rig.file.take_news(), "");
  }
  rig.file.write(line(11));
  EXPECT_EQ(rig.text(), all + line(11));
  EXPECT_EQ(rig.file.take_news(), rig.path.string() + " is written again");
  EXPECT_NO_THROW(rig.file.finish());
  {
    Room room(fs::file_size(rig.path));
    rig.file.write(line(12));
  }
  EXPECT_NO_THROW(rig.file.finish());
  EXPECT_EQ(rig.text(), all + line(11) + line(12));
}

// More than is kept is lost, and the end says so.
TEST(LogFile, SaysWhatIsLost) {
  LogRig rig;
  rig.file.keep_what_fails();
  const std::string block(std::size_t{1} << 20, 'x');
  {
    Room room(100);
    for (int i = 0; i < 66; ++i) rig.file.write(block);
  }
  rig.file.write("end\n");
  EXPECT_NE(rig.file.take_news().find("without"), std::string::npos);
  EXPECT_EQ(fs::file_size(rig.path) % block.size(), 4u);
  EXPECT_LE(fs::file_size(rig.path), (std::size_t{65} << 20));
  try {
    rig.file.finish();
    ADD_FAILURE() << "nothing is said of what is lost";
  } catch (const IoFailed& error) {
    EXPECT_NE(std::string(error.what()).find("lacks"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace forge::test

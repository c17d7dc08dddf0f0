#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace forge::test {

// A directory of this process, in memory where there is such a file system; removed at its end. run.sh knows its name.
class FuzzScratch {
 public:
  explicit FuzzScratch(const std::string& name) {
    const char* const base = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    path_ = std::string(base) + "/forge_" + name + "_" + std::to_string(::getpid()) + "_";
    std::filesystem::create_directories(path_);
  }
  ~FuzzScratch() { std::filesystem::remove_all(path_); }
  FuzzScratch(const FuzzScratch&) = delete;
  FuzzScratch& operator=(const FuzzScratch&) = delete;

  // A path in it; `name` may begin with a directory.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void put(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

inline std::string get(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace forge::test

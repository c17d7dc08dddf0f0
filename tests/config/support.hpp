#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "config/keys.hpp"
#include "core/error.hpp"

namespace forge::test {

// A directory that ends with the object.
class Directory {
 public:
  Directory() {
    // Thousands of small files: in memory where the system has such a directory.
    const std::string root =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    std::string pattern = root + "/forge_config_XXXXXX";
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  Directory(const Directory&) = delete;
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const {
    const std::string file = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// The message of the BadInput that f throws; "" when it throws none.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const BadInput& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_input);
    return e.what();
  }
  return "";
}

// f throws a BadInput whose message holds every one of the parts.
template <class F>
void expect_bad_input(F&& f, std::initializer_list<const char*> parts) {
  const std::string message = message_of(f);
  EXPECT_FALSE(message.empty()) << "nothing was thrown";
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << "\nis not in\n" << message;
}

inline int lines_of(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
}

// Changes, removes, doubles or inserts one to eight bytes or stretches.
inline std::string mutated(std::string text, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t i = 0, n = 1 + below(8); i < n && !text.empty(); ++i) {
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 2:
        text.erase(at, 1 + below(16));
        break;
      case 3:
        text.insert(at, 1, "{}[]:,-?&*!|>'\"%@`#0e.\n\t "[below(26)]);
        break;
      case 4:
        text.insert(at, text.substr(below(text.size()), 1 + below(32)));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

// The first key whose value differs, "" when none does.
inline std::string difference(const Deck& a, const Deck& b) {
  for (const auto& key : all_keys())
    if (!std::visit([&](const auto& k) { return k.access.get(a) == k.access.get(b); }, key.kind))
      return key.qualified() + ": " + value_text(key, a) + " and " + value_text(key, b);
  return "";
}

}  // namespace forge::test

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace forge::test {

// A directory of its own for a test, removed with the object.
class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "forge-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
void write_tokens(const std::string& path, const std::vector<T>& values) {
  write_text(path, bytes_of(values));
}

// 0, 1, 2, … n−1, each modulo `vocabulary`.
template <class T>
std::vector<T> counting(std::size_t n, std::uint64_t vocabulary = UINT64_MAX) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(i % vocabulary);
  return values;
}

// The file that numpy.save writes for a one-dimensional array.
template <class T>
std::string npy(const std::vector<T>& values, const std::string& type, int version = 1) {
  std::string dict =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) + ",), }";
  const std::size_t start = version == 1 ? 10 : 12;
  while ((start + dict.size() + 1) % 64 != 0) dict += ' ';
  dict += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (std::size_t i = 0; i < start - 8; ++i) bytes += static_cast<char>(dict.size() >> (8 * i) & 0xff);
  return bytes + dict + bytes_of(values);
}

// Text of the BadInput that `call` throws; a failure when it throws none.
template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const BadInput& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

inline void expect_mentions(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " is missing in: " << text;
}

}  // namespace forge::test

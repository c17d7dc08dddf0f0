#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/file_handle.hpp"

namespace forge {

// How a file's name says that its text is stored.
struct TextFileKind {
  bool json_lines = false;  // .jsonl: a document a line; else the file is one
  enum class Compression { none, gzip, zstd } compression = Compression::none;
};
// By the name's end: .jsonl, .jsonl.gz, .jsonl.zst; any other name, with .gz or .zst or without, is a text. BadInput:
// Parquet, archives, and compression that isn't read.
TextFileKind text_file_kind(const std::string& path);

// The bytes of a text file from its start, decompressed.
class TextFile {
 public:
  // BadInput: no such file.
  explicit TextFile(const std::string& path);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  // Appends up to `most` bytes; false at the end. BadInput: compressed data that is broken or ends too early.
  bool read(std::string& to, std::size_t most);
  // Of the file's own bytes, those that were read.
  std::uint64_t position() const { return offset_; }
  std::uint64_t size() const { return size_; }
  const TextFileKind& kind() const { return kind_; }

 private:
  struct Decompressor;
  bool fill();
  bool read_gzip(std::string& to, std::size_t most);
  bool read_zstd(std::string& to, std::size_t most);

  std::string path_;
  TextFileKind kind_;
  FileHandle file_;
  std::uint64_t offset_ = 0, size_ = 0;
  std::unique_ptr<Decompressor> decompressor_;
};

}  // namespace forge

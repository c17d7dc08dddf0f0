#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/file_handle.hpp"

namespace forge {

// How a file's text is stored. The file's first bytes show compression; its name shows lines of JSON (.jsonl, .ndjson,
// .jl, .json; any case, a number or a compression's ending behind it), or its first lines do: maps that have the
// field.
struct TextFileKind {
  bool json_lines = false;  // a document a line; else the file is one
  enum class Compression { none, gzip, zstd } compression = Compression::none;
};

// The bytes of a text file from its start, decompressed.
class TextFile {
 public:
  // `field`: whose text is a document of JSON lines. BadInput: no such file, or one that is no text: Parquet, archives,
  // pictures, UTF-16, Git LFS pointers, …, compression that isn't read.
  explicit TextFile(const std::string& path, const std::string& field = "text");
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  // Appends up to `most` bytes; false at the end. BadInput: compressed data that is broken or ends too early.
  bool read(std::string& to, std::size_t most);
  // The bytes of the file that were read, compressed where it is, and all of them.
  std::uint64_t position() const { return offset_; }
  std::uint64_t size() const { return size_; }
  const TextFileKind& kind() const { return kind_; }

 private:
  struct Decompressor;
  void open_decompressor();
  void check_contents() const;
  struct FirstLines {
    bool all_maps = false, all_with_field = false;
  };
  FirstLines first_lines(const std::string& field) const;
  bool has_json_lines(const std::string& field) const;
  bool read_more(std::string& to, std::size_t most);
  bool read_plain(std::string& to, std::size_t most);
  bool fill();
  bool only_zeros_left();
  bool read_gzip(std::string& to, std::size_t most);
  bool read_zstd(std::string& to, std::size_t most);

  std::string path_;
  TextFileKind kind_;
  FileHandle file_;
  std::uint64_t offset_ = 0, size_ = 0;
  std::string head_;            // the first bytes, decompressed
  std::size_t head_begin_ = 0;  // of their unread part
  std::unique_ptr<Decompressor> decompressor_;
};

// "1.2.13": of the zlib that this process runs with.
std::string zlib_library_version();

}  // namespace forge

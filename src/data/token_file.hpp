#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "config/deck.hpp"
#include "config/file_handle.hpp"
#include "core/types.hpp"

namespace forge {

// One file of token ids: raw little-endian uint16 or uint32, or a one-dimensional .npy array.
class TokenFile {
 public:
  // A file whose name ends in .npy says its own type, which must be `declared` where something is declared; any other
  // needs a declaration. Throws BadInput that names file and byte offset.
  static TokenFile open(const std::string& path, TokenType declared);

  const std::string& path() const { return path_; }
  DType type() const { return type_; }
  std::int64_t tokens() const { return tokens_; }
  // Byte at which token i stands.
  std::int64_t offset_of(std::int64_t token) const {
    return data_offset_ + token * static_cast<std::int64_t>(size_of(type_));
  }
  // Tokens [first, first + out.size()). An id outside 0 … vocabulary−1 is BadInput, which names file, offset and id; so
  // is a file that has become shorter. May be called by several threads; allocates nothing.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const;

 private:
  TokenFile(FileHandle file, std::string path, DType type, std::int64_t tokens, std::int64_t data_offset)
      : file_(std::move(file)), path_(std::move(path)), type_(type), tokens_(tokens), data_offset_(data_offset) {}

  FileHandle file_;
  std::string path_;
  DType type_;
  std::int64_t tokens_;
  std::int64_t data_offset_;
};

}  // namespace forge

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "config/deck.hpp"
#include "core/types.hpp"
#include "data/posix_file.hpp"

namespace forge {

// One file of token ids: raw little-endian uint16 or uint32, or a one-dimensional .npy array.
class TokenFile {
 public:
  // A file whose name ends in .npy says its own type, which must be `declared` where something is declared; any other
  // needs a declaration. Throws BadInput that names file and byte offset.
  static TokenFile open(const std::string& path, TokenType declared);

  const std::string& path() const { return file_.path(); }
  DType type() const { return type_; }
  std::int64_t tokens() const { return tokens_; }
  // Byte at which token i stands.
  std::int64_t offset_of(std::int64_t token) const {
    return data_offset_ + token * static_cast<std::int64_t>(size_of(type_));
  }
  // Tokens [first, first + out.size()). An id outside 0 … vocabulary−1 is BadInput, which names file, offset and id; a
  // file that has become shorter is IoFailed. May be called by several threads; allocates nothing.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const;

 private:
  TokenFile(PosixFile file, DType type, std::int64_t tokens, std::int64_t data_offset)
      : file_(std::move(file)), type_(type), tokens_(tokens), data_offset_(data_offset) {}

  PosixFile file_;
  DType type_;
  std::int64_t tokens_;
  std::int64_t data_offset_;
};

}  // namespace forge

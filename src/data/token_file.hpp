#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "config/deck.hpp"
#include "config/file_handle.hpp"
#include "core/types.hpp"
#include "data/document_index.hpp"
#include "text/token_format.hpp"

namespace forge {

// One file of token ids.
class TokenFile {
 public:
  // A file that says its own type must say `declared` where something is declared; any other needs a declaration.
  // Throws BadInput that names file and byte offset.
  static TokenFile open(const std::string& path, TokenType declared);
  // An .npy file of bytes or truths, each 0 or 1: whether the token of the same number may be a label.
  static TokenFile open_mask(const std::string& path);

  TokenFormat format() const { return format_; }
  bool is_mask() const { return mask_; }
  // Null where the file has no index of documents.
  const DocumentIndex* documents() const { return documents_.get(); }

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
  TokenFile(FileHandle file, std::string path, TokenFormat format, DType type, std::int64_t tokens,
            std::int64_t data_offset)
      : file_(std::move(file)),
        path_(std::move(path)),
        format_(format),
        type_(type),
        tokens_(tokens),
        data_offset_(data_offset) {}
  static TokenFile open_npy(FileHandle file, const std::string& path, TokenType declared);
  static TokenFile open_megatron(const std::string& index, const std::string& bin, TokenType declared);
  static TokenFile open_llm_c(FileHandle file, const std::string& path, TokenType declared);
  static TokenFile open_raw(FileHandle file, const std::string& path, TokenType declared);

  FileHandle file_;
  std::string path_;
  TokenFormat format_;
  DType type_;
  std::int64_t tokens_;
  std::int64_t data_offset_;
  std::shared_ptr<const DocumentIndex> documents_;
  bool mask_ = false;
};

}  // namespace forge

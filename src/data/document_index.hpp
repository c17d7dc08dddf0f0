#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "config/file_handle.hpp"
#include "core/types.hpp"

namespace forge {

// Where the documents of a token file begin and end, as an index file beside it says. The index stays on the disk: two
// reads find a document. Its contents aren't trusted: opening reads it once, and refuses numbers out of order.
class DocumentIndex {
 public:
  virtual ~DocumentIndex() = default;
  std::int64_t documents() const { return documents_; }
  const std::string& path() const { return path_; }
  // Tokens before documents first, first + 1, …; of the last + 1st, all tokens of the file. Of several threads.
  virtual void starts(std::int64_t first, std::span<std::int64_t> out) const = 0;
  std::int64_t start(std::int64_t document) const;
  // The document that token i belongs to; documents may be empty.
  std::int64_t document_of(std::int64_t token) const;

 protected:
  std::string path_;
  std::int64_t documents_ = 0;
};

// Megatron-Core's IndexedDataset (class _IndexReader of megatron/core/datasets/indexed_dataset.py): "MMIDIDX\0\0",
// version 1 (u64), type (u8), sequences S (u64), document bounds D (u64), lengths of sequences (S i32), byte offsets of
// sequences (S i64), bounds of documents in sequences (D i64); of multimodal sets S bytes more. The sequences must
// follow one another in the .bin file, as all its writers place them.
struct MegatronFile {
  DType type;
  std::int64_t tokens;
  std::shared_ptr<const DocumentIndex> documents;
};
// Whether `head`, the first megatron_magic_bytes of a file, is the magic.
bool has_megatron_magic(std::span<const std::byte> head);
// `bin_bytes`: size of the .bin file. Throws BadInput that names `path`, the byte offset and the rule.
MegatronFile open_megatron_index(const std::string& path, const std::string& bin_path, std::int64_t bin_bytes);

// datatrove's .ds.index: of each document the number of tokens up to its end, u64.
std::shared_ptr<const DocumentIndex> open_ds_index(const std::string& path, std::int64_t tokens);

}  // namespace forge

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/state.hpp"
#include "core/heartbeat.hpp"

namespace forge {

// Brings a piece's bytes to the host: `to` ← `from` (device), complete when it returns.
using CopyToHost = std::function<void(void* to, const void* from, std::size_t bytes)>;

struct ShardOptions {
  // A chunk is read and verified as a whole. A dataset has about `parts` of them, datasets of tensors in strips
  // `strip_parts`, so that a layout which cuts it elsewhere reads little that it doesn't need; but none has more or
  // less than so many bytes.
  std::size_t most_bytes = std::size_t{1} << 20;
  std::size_t parts = 64, strip_parts = 128, least_bytes = std::size_t{4} << 10;
  Heartbeat* heartbeat = nullptr;  // beats behind each chunk, and behind parts that are on the disk
};

// The options with chunks so large that a state of so many bytes has about 16 million at most: the manifest has a row
// for each, and one rank holds it.
ShardOptions few_chunks(ShardOptions options, std::size_t state_bytes);

// Elements of a chunk of a dataset that has these pieces of a tensor. Where it can, a chunk ends wherever an eighth of
// a piece's rows does (a strip's end, of a tensor in strips), as layouts cut there.
std::int64_t chunk_elements(const std::vector<StoredPiece>& pieces, std::size_t element_bytes, bool strips,
                            const ShardOptions& options);

// Writes a rank's pieces to a new shard file of its number, and forces it to the disk. Throws IoFailed. Needs host
// memory for one piece and one chunk.
ShardIndex write_shard(const std::string& directory, std::int64_t number, const std::vector<StateTensor>& tensors,
                       const CopyToHost& copy, const ShardOptions& options = {});

// SHA-256 of the bytes of a shard's file, of `bytes` bytes, that belong to no chunk of its datasets.
Hash hash_of_rest(const std::string& path, const std::vector<const StoredDataset*>& datasets, std::uint64_t bytes);

// Forces a file or a directory to the disk.
void sync_file(const std::string& path);
void sync_directory(const std::string& path);

}  // namespace forge

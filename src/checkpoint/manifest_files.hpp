#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest_pieces.hpp"
#include "checkpoint/table_file.hpp"
#include "comm/communicator.hpp"

namespace forge {

// SHA-256 of a whole file, in small parts.
Hash hash_of_file(const std::string& path);
// Throws BadCheckpoint unless `directory` has a manifest of the hash in manifest.sha256, which it returns. `hash_of`:
// how the file is read.
Hash verified_manifest(const std::string& directory, Hash (*hash_of)(const std::string& path) = hash_of_file);

// The files with a checkpoint's tables, each verified against its hash before it is read: manifest.h5, and its pieces
// where it is of format 2. Throws BadCheckpoint and IoFailed as CheckpointFiles does, whose name it checks, too.
class ManifestFiles {
 public:
  // `node`: ranks that make the same calls; the first one reads the files and hands them out. null: this rank reads.
  explicit ManifestFiles(std::string directory, Communicator* node = nullptr);

  const Hash& hash() const { return hash_; }  // of manifest.h5
  // Once, by all ranks of the node; each gets the rows that it wants. Behind it shards_of() is there alone.
  Manifest read(const DatasetFilter& wanted);

  // Reading by this rank alone: the tables of one piece after the other, with all tensors. Format 1 has one piece.
  std::size_t pieces() const { return in_pieces() ? root_.pieces.size() : 1; }
  Manifest read_piece(std::size_t piece, const DatasetFilter& wanted = {}) const;
  std::vector<StoredShard> shards_of(std::size_t piece) const { return read_shards(*verified_piece(piece, nullptr)); }
  bool in_pieces() const { return in_pieces_; }
  // Numbers of shards, in the order of pieces: of a manifest in pieces.
  const std::vector<ManifestPiece>& list() const { return root_.pieces; }

 private:
  void check_step(const CheckpointFacts& facts) const;
  Manifest without_shards() const;
  std::string path_of(std::size_t piece) const;
  std::unique_ptr<TableFile> verified_piece(std::size_t piece, Communicator* node) const;

  std::string directory_;
  Communicator* node_;
  Hash hash_{};
  bool in_pieces_ = false;
  std::unique_ptr<TableFile> file_;  // of format 1
  ManifestRoot root_;                // of format 2
};

}  // namespace forge

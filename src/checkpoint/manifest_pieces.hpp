#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "comm/communicator.hpp"

namespace forge {

// The manifest of a checkpoint of many shards, so that no rank writes or reads all tables: so many consecutive shards
// have their tables in a file of their own, a piece, which their first rank writes, and manifest.h5 has the reach of
// each piece's tensors. docs/notes/checkpoint.md describes the tables.
inline constexpr int most_shards_of_piece = 64;
std::string piece_name(std::int64_t number);  // "manifest_00012.h5"

struct ManifestPiece {
  std::int64_t number = 0;  // in its file's name
  Range shards;             // their numbers are among these
  std::int64_t count = 0;   // of shards
  std::uint64_t bytes = 0;
  Hash hash{};  // of the file
};
// The elements of a tensor that a piece's shards hold, and the box around them.
struct PieceReach {
  std::int64_t piece = 0, tensor = 0;  // rows
  std::int64_t elements = 0;
  Box box;
  void add(const StoredDataset& dataset);
};
// The content of a manifest.h5 of format 2.
struct ManifestRoot {
  CheckpointFacts facts;
  std::vector<StoredTensor> tensors;
  std::vector<ManifestPiece> pieces;  // in the order of their shards
  std::vector<PieceReach> reaches;    // in the order of pieces, then of tensors
};

// Write new files, and force them to the disk; throw IoFailed. A piece has tensors, shards and datasets, no facts.
void write_piece(const std::string& file, const Manifest& piece, Heartbeat* heartbeat = nullptr);
void write_root(const std::string& file, const ManifestRoot& root, Heartbeat* heartbeat = nullptr);
// Read untrusted files whose hashes have been verified, as read_manifest() does. read_piece() adds the wanted datasets
// of piece number `piece` to `manifest`, which has the root's tensors; the piece must agree with the root, which may
// lack other pieces' reaches.
ManifestRoot read_root(const TableFile& file);
// The piece's shards alone.
std::vector<StoredShard> read_shards(const TableFile& file);
void read_piece(const TableFile& file, const ManifestRoot& root, std::size_t piece, const DatasetFilter& wanted,
                Manifest& manifest);

// The root's rows of a piece, as its writer sends them.
struct PieceSummary {
  ManifestPiece piece;
  std::vector<StoredTensor> tensors;
  std::vector<PieceReach> reaches;  // `tensor` counts in `tensors` above
};
PieceSummary summary_of(const Manifest& manifest, const ManifestPiece& piece);
std::string to_text(const PieceSummary& summary);
PieceSummary piece_summary_from(const std::string& text);
// The pieces come in the order of their shards.
ManifestRoot merged(const CheckpointFacts& facts, std::vector<PieceSummary> pieces);

// Writes the manifest of each step that the ranks save: one file where they are few, in pieces where they are more than
// a piece has shards.
class ManifestWriter {
 public:
  // Collective.
  ManifestWriter(Communicator& ranks, int shards_of_piece);
  bool in_pieces() const { return group_ != nullptr; }

  // The file that this rank has written, and its hash; no name: none.
  struct File {
    std::string name;
    Hash hash{};
  };
  // Collective, where the manifest is in pieces, each with its shard's index as text. The caller tells the other ranks
  // of an exception of one rank, here and below.
  File write_piece(const std::string& directory, const std::string& index, Heartbeat* heartbeat);
  // Collective, when all pieces are on the disk: rank 0 writes manifest.h5.
  void write_manifest(const std::string& directory, const CheckpointFacts& facts, const std::string& index,
                      Heartbeat* heartbeat);

 private:
  Communicator& ranks_;
  int shards_of_piece_;
  std::unique_ptr<Communicator> group_,
      firsts_;           // of a piece; the pieces' first ranks
  std::string summary_;  // of the piece that this rank has written
};

}  // namespace forge

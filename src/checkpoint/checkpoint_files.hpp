#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest_files.hpp"
#include "checkpoint/state.hpp"

namespace forge {

// The datasets that hold a part of these tensors' pieces, which live longer than the filter.
DatasetFilter datasets_of(const std::vector<StateTensor>& tensors);

// A committed checkpoint, read without libhdf5 but for its manifest, whose hash is verified first.
class CheckpointFiles {
 public:
  // Throws BadCheckpoint where the manifest is missing, has another hash, or is not consistent; IoFailed, here and
  // below, where a file that may be whole can't be read. `wanted`: the datasets of manifest(), the only ones that
  // read() may be asked for. `node`: ranks that make one together; the first one reads the tables for all.
  explicit CheckpointFiles(const std::string& directory, const DatasetFilter& wanted = {},
                           Communicator* node = nullptr);

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  const CheckpointFacts& facts() const { return manifest_.facts; }
  const Hash& hash() const { return tables_.hash(); }  // of manifest.h5
  // nullptr where there is no tensor with the name.
  const StoredTensor* find(const std::string& name) const;

  // "" or the shards that are missing or have another size. Reads no data. Each of several ranks looks at one in
  // `parts` of the manifest's pieces, part 0 at a manifest of one piece.
  std::string missing(int part = 0, int parts = 1) const;
  // Fills every piece of these tensors, each byte of which is verified before it is used, converted where one is fp32
  // and the other fp64. Reads the chunks that overlap a piece, each once, by all threads of the stream. Throws
  // BadCheckpoint naming file and tensor. The heartbeat, if any, beats behind each chunk.
  void read(const std::vector<StateTensor>& tensors, Stream& stream, Heartbeat* heartbeat = nullptr);
  // Fills pieces in memory of the host, by all threads.
  void read(const std::vector<StateTensor>& tensors);
  // Bytes of chunks read so far.
  std::uint64_t bytes_read() const { return bytes_read_; }
  // Bytes of the pieces filled with them.
  std::uint64_t bytes_needed() const { return bytes_needed_; }

 private:
  // A piece of a wanted tensor, and where its bytes are put on the host.
  struct Target {
    const StatePiece* piece;
    std::byte* at;
  };
  // Some chunks of a dataset that targets have parts of.
  struct Reading {
    const StoredDataset* dataset;
    DType type;                                 // of the targets
    std::shared_ptr<std::vector<Target>> into;  // of one tensor
    std::size_t begin, end;
  };
  // Where a piece's bytes are put: its own memory, or memory on the host that is copied there later.
  using Place = std::function<std::byte*(const StatePiece&, std::size_t bytes)>;
  void plan(const StateTensor& wanted, const Place& place, std::vector<Reading>& readings);
  void read(const Reading& reading, Heartbeat* heartbeat);

  std::string directory_;
  ManifestFiles tables_;
  Manifest manifest_;
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::vector<const StoredDataset*>> datasets_;  // by tensor
  std::atomic<std::uint64_t> bytes_read_ = 0;
  std::uint64_t bytes_needed_ = 0;
};

// Reads and verifies every byte of a checkpoint's files, from the disk (DiskReader). Returns the errors, one text for
// each; empty: it is whole. `threads` shards at a time. Throws IoFailed where a file can't be read.
std::vector<std::string> verify_checkpoint(const std::string& directory, int threads);
// A rank's share of verify_checkpoint: of the shards one in `parts`, all parts together are the whole. `between` is
// called now and then.
std::vector<std::string> verify_part(const std::string& directory, int part, int parts,
                                     const std::function<void()>& between = {});

}  // namespace forge

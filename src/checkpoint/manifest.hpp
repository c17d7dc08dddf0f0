#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/hash.hpp"
#include "checkpoint/state.hpp"
#include "core/error.hpp"
#include "core/file_errors.hpp"
#include "core/heartbeat.hpp"
#include "core/types.hpp"
#include "layout/boxes.hpp"

namespace forge {

// A checkpoint that cannot be used (exit code 3): missing, damaged, or different from its own table.
class BadCheckpoint : public Error {
 public:
  explicit BadCheckpoint(const std::string& text, std::source_location where = std::source_location::current())
      : Error(text, ExitCode::no_checkpoint, where) {}
};

// A file that is missing or too short is a damaged checkpoint, not a wrong deck. One that can't be read (IoFailed) may
// be whole.
template <class F>
auto as_damage(F f) {
  try {
    return f();
  } catch (const NotPermitted& error) {
    throw IoFailed(error.what());
  } catch (const BadInput& error) {
    throw BadCheckpoint(error.what());
  }
}

// Where a run stands, beside its tensors.
struct CheckpointFacts {
  std::int64_t step = 0;
  std::int64_t tokens = 0, samples = 0;  // trained on so far
  std::int64_t updates = 0;              // of the parameters: step less those that were skipped for NaN or Inf
  std::int64_t bad_in_a_row = 0;         // steps with NaN or Inf up to this one
  std::uint64_t seed = 0;
  std::int64_t ranks = 1;  // that wrote it
  std::string deck;        // resolved
  std::string build;
  std::string data;         // a fingerprint of the training files: compared at a restart
  std::string spikes = {};  // train/spikes.hpp; "": nothing
};

// docs/notes/checkpoint.md describes the tables.
constexpr std::size_t most_dimensions = 4;

struct StoredTensor {
  std::string name;  // "parameters/layers.0.norm1": also its path in the files
  DType type = DType::f32;
  Extents shape;
};
// A part of a tensor, row-major, among the elements of a dataset of a shard.
struct StoredPiece {
  Box box;
  std::int64_t first = 0;
};
// Bytes of a shard's file: chunk_elements elements (the last ones of a dataset may be padding), and HDF5's checksum.
struct StoredChunk {
  std::uint64_t offset = 0, bytes = 0;
  Hash hash{};
};
// A shard's part of a tensor: a dataset of one dimension under the tensor's name.
struct StoredDataset {
  std::int64_t tensor = 0, shard = 0;  // in the manifest's lists
  std::int64_t elements = 0, chunk_elements = 1;
  std::vector<StoredPiece> pieces;  // in the order of their elements, which fill the dataset
  std::vector<StoredChunk> chunks;
};
struct StoredShard {
  std::int64_t number = 0;  // in its file's name; the rank that wrote it
  std::uint64_t bytes = 0;
  Hash rest{};  // of the bytes that belong to no chunk, in order: HDF5's own
};
std::string shard_name(std::int64_t number);  // "shard_00012.h5"

// A checkpoint's tables: of format 1 the content of manifest.h5, without the virtual datasets; of format 2 the shards
// of some pieces (checkpoint/manifest_pieces.hpp), with all tensors.
struct Manifest {
  CheckpointFacts facts;
  std::vector<StoredTensor> tensors;
  std::vector<StoredShard> shards;
  std::vector<StoredDataset> datasets;
};
inline constexpr std::int64_t whole_format = 1, pieces_format = 2;  // of manifest.h5
inline constexpr const char* manifest_name = "manifest.h5";
inline constexpr const char* manifest_hash_name = "manifest.sha256";

// Writes a new file, and forces it to the disk. Throws IoFailed. The heartbeat, if any, beats behind each table and
// each tensor.
void write_manifest(const std::string& file, const Manifest& manifest, Heartbeat* heartbeat = nullptr);
// Reads an untrusted file whose hash has been verified: hard links only, exact types and extents, one filter, and the
// tables consistent: pieces within their tensors, as many elements as the tensor has, chunks within their shard's file
// and without overlap. Throws BadCheckpoint. Opens no other file.
//
// `wanted`: which datasets stay. All rows are looked at, a chunk of a table at a time, so that the memory of a rank
// doesn't grow with the number of ranks that wrote.
struct DatasetFilter {
  // Each empty: all.
  std::function<bool(const StoredDataset&, const StoredTensor&)> dataset = {};
  // Whether a piece is read that has parts of this tensor within the box.
  std::function<bool(const StoredTensor&, const Box& box)> reach = {};
};
class TableFile;
Manifest read_manifest(const TableFile& file, const DatasetFilter& wanted = {});
Manifest read_manifest(const std::string& file);

// The tensors, shard and datasets that one rank wrote. The tensors of all ranks are put together by name.
struct ShardIndex {
  std::vector<StoredTensor> tensors;
  StoredShard shard;
  std::vector<StoredDataset> datasets;  // `tensor` counts in `tensors` above
};
std::string to_text(const ShardIndex& index);
ShardIndex shard_index_from(const std::string& text);

// Tensors that come by name, each of one type and shape, in the order in which they first come.
class TensorList {
 public:
  explicit TensorList(std::vector<StoredTensor>& tensors) : tensors_(tensors) {}
  std::int64_t number_of(const StoredTensor& tensor);

 private:
  std::vector<StoredTensor>& tensors_;
  std::map<std::string, std::int64_t> numbers_;
};
// Puts the shards of all ranks together, which come in the order of ranks; a rank without tensors has no shard.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(const CheckpointFacts& facts) { manifest_.facts = facts; }
  ManifestBuilder(const ManifestBuilder&) = delete;
  ManifestBuilder& operator=(const ManifestBuilder&) = delete;
  void add(ShardIndex index);
  Manifest take() { return std::move(manifest_); }

 private:
  Manifest manifest_;
  TensorList tensors_{manifest_.tensors};
};
Manifest merged(const CheckpointFacts& facts, std::vector<ShardIndex> shards);

}  // namespace forge

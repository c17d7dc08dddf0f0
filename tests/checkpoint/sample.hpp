#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/shard_writer.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "config/file_handle.hpp"
#include "config/output_file.hpp"
#include "core/random.hpp"
#include "device/device_memory.hpp"

namespace forge::test {

namespace fs = std::filesystem;

// A directory of this process, removed at the end; in memory where there is such a place: every save is forced to the
// disk several times.
struct Scratch {
  static fs::path base() { return fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path(); }
  fs::path path = base() / ("forge_checkpoint_" + std::to_string(getpid()) + "_" +
                            std::to_string(reinterpret_cast<std::uintptr_t>(this)));
  Scratch() { fs::create_directories(path); }
  ~Scratch() { fs::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

// A whole tensor: its bytes are a function of name, element and salt.
struct SampleTensor {
  std::string name;
  DType type;
  Extents shape;
  std::int64_t strip = 0;
  std::uint64_t salt = 0;

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(static_cast<std::size_t>(element_count(shape)) * size_of(type));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(mix(hash_of(name) + salt, i));
    return all;
  }
};

inline std::vector<SampleTensor> sample_tensors() {
  return {{"parameters/embedding.tokens", DType::f32, {31, 24}},
          {"parameters/layers.0.mlp.down", DType::f32, {24, 40}, 5},
          {"parameters/layers.0.norm1", DType::f32, {24}},
          {"parameters/layers.1.experts.down", DType::f32, {6, 10, 16}, 4},
          {"first_moment/layers.0.mlp.down", DType::bf16, {24, 40}, 5},
          {"second_moment/layers.0.norm1", DType::f64, {24}},
          {"state/one", DType::f32, {1}}};
}

// Memory of one rank's pieces, filled from whole tensors or to be filled.
struct SamplePieces {
  std::vector<std::vector<std::byte>> memory;
  std::vector<StateTensor> tensors;

  void add(const SampleTensor& tensor, const std::vector<Box>& boxes, bool filled) {
    StateTensor state{tensor.name, tensor.type, tensor.shape, tensor.strip, {}};
    const Box whole{Extents(tensor.shape.size(), 0), tensor.shape};
    const auto bytes = tensor.bytes();
    const std::size_t size = size_of(tensor.type);
    for (const Box& box : boxes) {
      memory.emplace_back(static_cast<std::size_t>(box.size()) * size);
      if (filled) copy_part(box, whole, bytes.data(), box, memory.back().data(), size);
      state.pieces.push_back({box, memory.back().data()});
    }
    tensors.push_back(state);
  }
};

// The pieces in device memory.
struct DevicePieces {
  std::vector<Buffer> memory;
  std::vector<StateTensor> tensors;

  DevicePieces(const SamplePieces& pieces, Stream& stream) : tensors(pieces.tensors) {
    for (StateTensor& tensor : tensors)
      for (StatePiece& piece : tensor.pieces) {
        const std::size_t bytes = static_cast<std::size_t>(piece.box.size()) * size_of(tensor.type);
        memory.emplace_back(bytes);
        copy_to_device(stream, memory.back().data(), piece.data, bytes);
        piece.data = memory.back().data();
      }
    stream.synchronize();
  }
};

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

// A tensor's row-major order cut into `parts` at drawn places; part i as boxes.
inline std::vector<std::vector<Box>> cut(const Extents& shape, int parts, std::uint64_t key) {
  const std::int64_t n = element_count(shape);
  std::vector<std::int64_t> ends{n};
  for (int i = 1; i < parts; ++i)
    ends.push_back(
        static_cast<std::int64_t>(mix(key, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(n + 1)));
  std::sort(ends.begin(), ends.end());
  std::vector<std::vector<Box>> result;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    result.push_back(boxes_of(shape, {begin, end}));
    begin = end;
  }
  return result;
}

inline CheckpointFacts sample_facts(std::int64_t step) {
  return {step, 7 * step, 3 * step, step - 1, 1, ~std::uint64_t{0}, 3, "model: {}\n", "test", "no data"};
}

// Of format 2, with so many shards a piece.
inline void write_in_pieces(const std::string& directory, const CheckpointFacts& facts, std::vector<ShardIndex> shards,
                            std::size_t each) {
  std::vector<PieceSummary> summaries;
  for (std::size_t first = 0; first < shards.size(); first += each) {
    ManifestBuilder builder({});
    const std::size_t end = std::min(first + each, shards.size());
    for (std::size_t i = first; i < end; ++i) builder.add(std::move(shards[i]));
    const Manifest manifest = builder.take();
    const auto number = static_cast<std::int64_t>(first / each);
    const std::string path = directory + "/" + piece_name(number);
    write_piece(path, manifest);
    summaries.push_back(summary_of(manifest, {number,
                                              {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end)},
                                              static_cast<std::int64_t>(manifest.shards.size()),
                                              fs::file_size(path),
                                              hash_of_file(path)}));
  }
  // Through text, as ranks send it.
  for (PieceSummary& summary : summaries) summary = piece_summary_from(to_text(summary));
  write_root(directory + "/" + manifest_name, merged(facts, std::move(summaries)));
}

// The hash beside a manifest that has been written or changed.
inline void write_manifest_hash(const fs::path& directory) {
  std::ofstream(directory / manifest_hash_name, std::ios::binary | std::ios::trunc)
      << hex_of(hash_of_file(directory / manifest_name)) + "  " + manifest_name + "\n";
}

// A committed checkpoint of the sample tensors, written by `ranks` ranks; its path. `key` varies the parts that each
// writes, `salt` the values. `each`: shards of a piece of the manifest; 0: it is one file.
inline std::string write_sample(const std::string& directory, std::int64_t step, int ranks,
                                const ShardOptions& options = {64}, std::uint64_t key = 1, std::uint64_t salt = 0,
                                std::size_t each = 0) {
  const std::string nonce = draw_nonce(), partial = start_step(directory, step, nonce);
  std::vector<ShardIndex> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    SamplePieces pieces;
    for (SampleTensor tensor : sample_tensors()) {
      tensor.salt = salt;
      const auto parts = cut(tensor.shape, ranks, mix(key, hash_of(tensor.name)));
      pieces.add(tensor, parts[static_cast<std::size_t>(rank)], true);
    }
    // Through text, as ranks send it.
    shards.push_back(shard_index_from(to_text(write_shard(partial, rank, pieces.tensors, copy_bytes, options))));
  }
  if (each > 0)
    write_in_pieces(partial, sample_facts(step), std::move(shards), each);
  else
    write_manifest(partial + "/" + manifest_name, merged(sample_facts(step), std::move(shards)));
  write_manifest_hash(partial);
  commit_step(directory, step, nonce);
  return directory + "/" + step_name(step);
}

// Whether `ranks` ranks, each with its part as write_sample cuts with this key, read the written values; throws the
// error of reading for any of them, as a restart does.
inline bool reads_back(CheckpointFiles& files, int ranks, std::uint64_t key) {
  bool same = true;
  for (int rank = 0; rank < ranks; ++rank) {
    SamplePieces wanted, expected;
    for (const SampleTensor& tensor : sample_tensors()) {
      const auto boxes = cut(tensor.shape, ranks, mix(key, hash_of(tensor.name)))[static_cast<std::size_t>(rank)];
      wanted.add(tensor, boxes, false);
      expected.add(tensor, boxes, true);
    }
    files.read(wanted.tensors);
    same &= wanted.memory == expected.memory;
  }
  return same;
}

inline bool reads_back(const std::string& path, int ranks = 1, std::uint64_t key = 1) {
  CheckpointFiles files(path);
  return reads_back(files, ranks, key);
}

inline std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void put(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace forge::test

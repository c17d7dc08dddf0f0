#include "checkpoint/checkpoint_files.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>

#include "checkpoint/directory.hpp"
#include "checkpoint/shard_check.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "config/file_handle.hpp"
#include "config/text.hpp"
#include "core/in_parallel.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "model/buffers.hpp"

namespace forge {

DatasetFilter datasets_of(const std::vector<StateTensor>& tensors) {
  std::map<std::string, const StateTensor*> by_name;
  for (const StateTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  return [by_name](const StoredDataset& dataset, const StoredTensor& tensor) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end()) return false;
    for (const StoredPiece& stored : dataset.pieces)
      for (const StatePiece& piece : found->second->pieces)
        if (piece.box.offset.size() == stored.box.offset.size() && overlap(stored.box, piece.box)) return true;
    return false;
  };
}

namespace {

// What a chunk holds: parts of pieces, and where their bytes begin.
struct Content {
  Box box;
  std::size_t element;  // in the chunk
};

std::vector<Content> content_of(const StoredDataset& d, std::size_t chunk) {
  const Range here{static_cast<std::int64_t>(chunk) * d.chunk_elements,
                   std::min(d.elements, static_cast<std::int64_t>(chunk + 1) * d.chunk_elements)};
  auto piece = std::upper_bound(d.pieces.begin(), d.pieces.end(), here.begin,
                                [](std::int64_t element, const StoredPiece& p) { return element < p.first; });
  std::vector<Content> content;
  for (--piece; piece != d.pieces.end() && piece->first < here.end; ++piece) {
    const Range part = intersection({piece->first, piece->first + piece->box.size()}, here);
    auto element = to_size(part.begin - here.begin);
    for (const Box& box : boxes_within(piece->box, {part.begin - piece->first, part.end - piece->first})) {
      content.push_back({box, element});
      element += to_size(box.size());
    }
  }
  return content;
}

// What the name of a checkpoint's directory promises, −1: nothing.
std::int64_t step_of_directory(const std::string& directory) {
  const std::filesystem::path path = directory;
  return step_of_name(path.has_filename() ? path.filename() : path.parent_path().filename());
}

template <class From, class To>
std::vector<std::byte> converted(const std::vector<std::byte>& from) {
  const std::size_t n = from.size() / sizeof(From);
  std::vector<std::byte> to(n * sizeof(To));
  for (std::size_t i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof value);
    const auto other = static_cast<To>(value);
    std::memcpy(to.data() + i * sizeof(To), &other, sizeof other);
  }
  return to;
}

// Rounded to nearest, where the other type has fewer bits.
std::vector<std::byte> converted(const std::vector<std::byte>& bytes, DType from, DType to) {
  const auto legal = [](DType type) { return type == DType::f64 || type == DType::f32 || type == DType::bf16; };
  if (!legal(from) || !legal(to)) throw Error("tensors of a checkpoint are converted between fp64, fp32 and bf16 only");
  return with_compute_type(from, [&](auto a) {
    return with_compute_type(to, [&](auto b) { return converted<decltype(a), decltype(b)>(bytes); });
  });
}

std::vector<std::string> verify_shard(const std::string& directory, const Manifest& manifest, std::size_t number,
                                      const std::function<void()>& between = {}) {
  std::vector<const StoredDataset*> datasets;
  for (const StoredDataset& d : manifest.datasets)
    if (d.shard == static_cast<std::int64_t>(number)) datasets.push_back(&d);
  const StoredShard& shard = manifest.shards[number];
  return shard_damage(directory + "/" + shard_name(shard.number), shard, manifest.tensors, datasets, between);
}

}  // namespace

Hash hash_of_file(const std::string& path) {
  return as_damage([&] {
    const FileHandle file = FileHandle::open_to_read(path, "file");
    Sha256 hash;
    hash.add(file, 0, file.size());
    return hash.finish();
  });
}

Hash verified_manifest(const std::string& directory, Hash (*hash_of)(const std::string& path)) {
  const std::string name = directory + "/" + manifest_hash_name;
  std::string text = as_damage([&] { return read_text_file(name, 256, "the manifest's hash"); });
  // "<hash>  manifest.h5\n", as sha256sum writes and checks it.
  Hash expected;
  if (!read_hex(text.substr(0, 64), expected) || text.substr(64) != std::string("  ") + manifest_name + "\n")
    throw BadCheckpoint(name + " holds no SHA-256 of " + manifest_name);
  const Hash hash = as_damage([&] { return hash_of(directory + "/" + manifest_name); });
  if (hash != expected)
    throw BadCheckpoint(directory + "/" + manifest_name + " has SHA-256 " + hex_of(hash) + ", " + name + " says " +
                        hex_of(expected));
  return hash;
}

CheckpointFiles::CheckpointFiles(const std::string& directory, const DatasetFilter& wanted)
    : directory_(directory),
      hash_(verified_manifest(directory)),
      manifest_(read_manifest(directory + "/" + manifest_name, wanted)),
      datasets_(manifest_.tensors.size()) {
  if (const std::int64_t named = step_of_directory(directory); named >= 0 && named != manifest_.facts.step)
    throw BadCheckpoint(directory + " holds step " + std::to_string(manifest_.facts.step) +
                        ": another checkpoint's files, or it was renamed");
  for (std::size_t t = 0; t < manifest_.tensors.size(); ++t) numbers_[manifest_.tensors[t].name] = t;
  for (const StoredDataset& d : manifest_.datasets) datasets_[to_size(d.tensor)].push_back(&d);
}

const StoredTensor* CheckpointFiles::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? nullptr : &manifest_.tensors[found->second];
}

std::string CheckpointFiles::missing() const {
  std::string text;
  for (const StoredShard& shard : manifest_.shards) {
    const std::string path = directory_ + "/" + shard_name(shard.number);
    try {
      const std::uint64_t bytes = as_damage([&] { return FileHandle::open_to_read(path, "shard").size(); });
      if (bytes == shard.bytes) continue;
      text += (text.empty() ? "" : "; ") + path + " has " + std::to_string(bytes) + " bytes, its manifest says " +
              std::to_string(shard.bytes);
    } catch (const BadCheckpoint& error) {
      text += (text.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  return text;
}

void CheckpointFiles::plan(const StateTensor& wanted, const Place& place, std::vector<Reading>& readings) {
  constexpr std::size_t most_chunks = 8;  // of a mebibyte: what a thread reads before it takes other ones
  const auto found = numbers_.find(wanted.name);
  if (found == numbers_.end()) throw BadCheckpoint(directory_ + " has no tensor " + wanted.name);
  const StoredTensor& stored = manifest_.tensors[found->second];
  require(stored.shape == wanted.shape, "a checkpoint's tensors were not compared");
  const auto into = std::make_shared<std::vector<Target>>();
  for (const StatePiece& piece : wanted.pieces) {
    into->push_back({&piece, place(piece, to_size(piece.box.size()) * size_of(wanted.type))});
    bytes_needed_ += to_size(piece.box.size()) * size_of(stored.type);
  }
  std::vector<std::int64_t> filled(into->size());
  for (const StoredDataset* dataset : datasets_[found->second]) {
    bool goes_on = false;
    for (std::size_t c = 0; c < dataset->chunks.size(); ++c) {
      bool read = false;
      for (const Content& part : content_of(*dataset, c))
        for (std::size_t i = 0; i < filled.size(); ++i) {
          if (!overlap(part.box, wanted.pieces[i].box)) continue;
          filled[i] += intersection(part.box, wanted.pieces[i].box).size();
          read = true;
        }
      if (goes_on && read && c - readings.back().begin < most_chunks)
        readings.back().end = c + 1;
      else if (read)
        readings.push_back({dataset, wanted.type, into, c, c + 1});
      goes_on = read;
    }
  }
  for (std::size_t i = 0; i < filled.size(); ++i)
    if (filled[i] != wanted.pieces[i].box.size())
      throw BadCheckpoint(directory_ + " doesn't hold all of " + wanted.name + " once");
}

void CheckpointFiles::read(const Reading& reading, Heartbeat* heartbeat) {
  const StoredDataset& d = *reading.dataset;
  const StoredTensor& tensor = manifest_.tensors[to_size(d.tensor)];
  const std::size_t size = size_of(reading.type);
  const std::string path = directory_ + "/" + shard_name(manifest_.shards[to_size(d.shard)].number);
  const FileHandle file = FileHandle::open_to_read(path, "shard");
  std::vector<std::byte> bytes;
  for (std::size_t c = reading.begin; c < reading.end; ++c) {
    const StoredChunk& chunk = d.chunks[c];
    bytes.resize(chunk.bytes);
    file.read_at(chunk.offset, bytes.data(), bytes.size());
    if (sha256(bytes) != chunk.hash)
      throw BadCheckpoint(path + ": chunk " + std::to_string(c) + " of " + tensor.name + ", at byte " +
                          std::to_string(chunk.offset) + ", is damaged: its SHA-256 is another");
    bytes_read_ += chunk.bytes;
    if (heartbeat) heartbeat->beat();
    if (tensor.type != reading.type) bytes = converted(bytes, tensor.type, reading.type);
    for (const Content& part : content_of(d, c))
      for (const Target& target : *reading.into)
        if (overlap(part.box, target.piece->box))
          copy_part(intersection(part.box, target.piece->box), part.box, bytes.data() + part.element * size,
                    target.piece->box, target.at, size);
  }
}

void CheckpointFiles::read(const std::vector<StateTensor>& tensors, Stream& stream, Heartbeat* heartbeat) {
  constexpr std::size_t most_staged = std::size_t{64} << 20;  // but for a tensor that is larger
  const bool direct = std::string_view(device_info().kind) == "cpu";
  struct Staged {
    const StatePiece* piece;
    std::vector<std::byte> bytes;
  };
  std::vector<Staged> staged;
  std::vector<Reading> readings;
  std::size_t planned = 0;
  const Place place = [&](const StatePiece& piece, std::size_t bytes) {
    planned += bytes;
    return direct ? piece.data : staged.emplace_back(&piece, std::vector<std::byte>(bytes)).bytes.data();
  };
  stream.synchronize();
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    plan(tensors[t], place, readings);
    if (planned < most_staged && t + 1 < tensors.size()) continue;
    as_damage([&] {
      in_parallel(
          readings.size(), [&](std::size_t i) { read(readings[i], heartbeat); }, stream.threads());
    });
    for (const Staged& s : staged) copy_to_device(stream, s.piece->data, s.bytes.data(), s.bytes.size());
    stream.synchronize();
    staged.clear(), readings.clear();
    planned = 0;
  }
}

void CheckpointFiles::read(const std::vector<StateTensor>& tensors) {
  std::vector<Reading> readings;
  for (const StateTensor& wanted : tensors)
    plan(
        wanted, [](const StatePiece& piece, std::size_t) { return piece.data; }, readings);
  as_damage([&] { in_parallel(readings.size(), [&](std::size_t i) { read(readings[i], nullptr); }); });
}

std::vector<std::string> verify_part(const std::string& directory, int part, int parts,
                                     const std::function<void()>& between) {
  const auto is_mine = [&](std::int64_t shard) { return shard % parts == part; };
  std::vector<std::string> findings;
  try {
    const CheckpointFiles files(directory,
                                [&](const StoredDataset& d, const StoredTensor&) { return is_mine(d.shard); });
    for (std::size_t i = 0; i < files.manifest().shards.size(); ++i) {
      if (!is_mine(static_cast<std::int64_t>(i))) continue;
      const auto found = verify_shard(directory, files.manifest(), i, between);
      findings.insert(findings.end(), found.begin(), found.end());
    }
  } catch (const BadCheckpoint& error) {
    findings.push_back(error.what());
  }
  return findings;
}

std::vector<std::string> verify_checkpoint(const std::string& directory, int threads) {
  std::unique_ptr<CheckpointFiles> files;
  try {
    files = std::make_unique<CheckpointFiles>(directory);
  } catch (const BadCheckpoint& error) {
    return {error.what()};
  }
  const Manifest& manifest = files->manifest();
  std::vector<std::vector<std::string>> found(manifest.shards.size());
  std::vector<std::exception_ptr> unread(manifest.shards.size());
  std::atomic<std::size_t> next{0};
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < std::max(1, threads); ++t)
      workers.emplace_back([&] {
        for (std::size_t i = next++; i < found.size(); i = next++) try {
            found[i] = verify_shard(directory, manifest, i);
          } catch (...) {
            unread[i] = std::current_exception();
          }
      });
  }
  for (const std::exception_ptr& error : unread)
    if (error) std::rethrow_exception(error);
  std::vector<std::string> findings;
  for (const auto& of_shard : found) findings.insert(findings.end(), of_shard.begin(), of_shard.end());
  return findings;
}

}  // namespace forge

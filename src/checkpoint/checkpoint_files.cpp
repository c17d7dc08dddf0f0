#include "checkpoint/checkpoint_files.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "checkpoint/tensor_parts.hpp"
#include "config/file_handle.hpp"
#include "core/in_parallel.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "model/buffers.hpp"

namespace forge {

DatasetFilter datasets_of(const std::vector<StateTensor>& tensors) {
  std::map<std::string, const StateTensor*> by_name;
  for (const StateTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  const auto reach = [by_name](const StoredTensor& tensor, const Box& box) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end()) return false;
    return std::ranges::any_of(found->second->pieces, [&](const StatePiece& piece) {
      return piece.box.offset.size() == box.offset.size() && overlap(box, piece.box);
    });
  };
  const auto dataset = [reach](const StoredDataset& dataset, const StoredTensor& tensor) {
    return std::ranges::any_of(dataset.pieces, [&](const StoredPiece& piece) { return reach(tensor, piece.box); });
  };
  return {dataset, reach};
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

}  // namespace

CheckpointFiles::CheckpointFiles(const std::string& directory, const DatasetFilter& wanted, Communicator* node)
    : directory_(directory),
      tables_(directory, node),
      manifest_(tables_.read(wanted)),
      datasets_(manifest_.tensors.size()) {
  for (std::size_t t = 0; t < manifest_.tensors.size(); ++t) numbers_[manifest_.tensors[t].name] = t;
  for (const StoredDataset& d : manifest_.datasets) datasets_[to_size(d.tensor)].push_back(&d);
}

const StoredTensor* CheckpointFiles::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? nullptr : &manifest_.tensors[found->second];
}

std::string CheckpointFiles::missing(int part, int parts) const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  const auto look = [&](const std::vector<StoredShard>& shards) {
    for (const StoredShard& shard : shards) {
      const std::string path = directory_ + "/" + shard_name(shard.number);
      try {
        const std::uint64_t bytes = as_damage([&] { return FileHandle::open_to_read(path, "shard").size(); });
        if (bytes != shard.bytes)
          add(path + " has " + std::to_string(bytes) + " bytes, its manifest says " + std::to_string(shard.bytes));
      } catch (const BadCheckpoint& error) {
        add(error.what());
      }
    }
  };
  if (!tables_.in_pieces() && part == 0) look(manifest_.shards);
  for (std::size_t p = to_size(part); tables_.in_pieces() && p < tables_.pieces(); p += to_size(parts))
    look(tables_.shards_of(p));
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

}  // namespace forge

#include <cstring>
#include <map>

#include "checkpoint/manifest.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Numbers and texts one behind the other, between ranks of one program.
class Packer {
 public:
  void add(std::int64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void add(std::uint64_t value) { add(static_cast<std::int64_t>(value)); }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    text_ += text;
  }
  void add(const Hash& hash) { text_.append(reinterpret_cast<const char*>(hash.data()), hash.size()); }
  void add(const Extents& extents) {
    add(static_cast<std::int64_t>(extents.size()));
    for (const std::int64_t extent : extents) add(extent);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& text) : text_(text) {}
  std::int64_t integer() {
    std::int64_t value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = to_size(integer());
    return {take(size), size};
  }
  Hash hash() {
    Hash hash;
    std::memcpy(hash.data(), take(hash.size()), hash.size());
    return hash;
  }
  Extents extents() {
    Extents extents(to_size(integer()));
    for (std::int64_t& extent : extents) extent = integer();
    return extents;
  }
  std::size_t count() { return to_size(integer()); }

 private:
  const char* take(std::size_t bytes) {
    require(text_.size() - at_ >= bytes, "a rank's list of tensors is cut");
    at_ += bytes;
    return text_.data() + at_ - bytes;
  }
  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string shard_name(std::int64_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "shard_" + digits + ".h5";
}

std::string to_text(const ShardIndex& index) {
  Packer out;
  out.add(index.shard.number);
  out.add(index.shard.bytes);
  out.add(index.shard.rest);
  out.add(static_cast<std::int64_t>(index.tensors.size()));
  for (const StoredTensor& t : index.tensors) {
    out.add(t.name);
    out.add(static_cast<std::int64_t>(t.type));
    out.add(t.shape);
  }
  out.add(static_cast<std::int64_t>(index.datasets.size()));
  for (const StoredDataset& d : index.datasets) {
    for (const std::int64_t value : {d.tensor, d.elements, d.chunk_elements}) out.add(value);
    out.add(static_cast<std::int64_t>(d.pieces.size()));
    for (const StoredPiece& p : d.pieces) {
      out.add(p.box.offset);
      out.add(p.box.extent);
      out.add(p.first);
    }
    out.add(static_cast<std::int64_t>(d.chunks.size()));
    for (const StoredChunk& c : d.chunks) {
      out.add(c.offset);
      out.add(c.bytes);
      out.add(c.hash);
    }
  }
  return out.take();
}

ShardIndex shard_index_from(const std::string& text) {
  Unpacker in(text);
  ShardIndex index;
  index.shard.number = in.integer();
  index.shard.bytes = static_cast<std::uint64_t>(in.integer());
  index.shard.rest = in.hash();
  index.tensors.resize(in.count());
  for (StoredTensor& t : index.tensors) {
    t.name = in.text();
    t.type = static_cast<DType>(in.integer());
    t.shape = in.extents();
  }
  index.datasets.resize(in.count());
  for (StoredDataset& d : index.datasets) {
    d.tensor = in.integer();
    d.elements = in.integer();
    d.chunk_elements = in.integer();
    d.pieces.resize(in.count());
    for (StoredPiece& p : d.pieces) {
      p.box.offset = in.extents();
      p.box.extent = in.extents();
      p.first = in.integer();
    }
    d.chunks.resize(in.count());
    for (StoredChunk& c : d.chunks) {
      c.offset = static_cast<std::uint64_t>(in.integer());
      c.bytes = static_cast<std::uint64_t>(in.integer());
      c.hash = in.hash();
    }
  }
  return index;
}

void ManifestBuilder::add(ShardIndex index) {
  if (index.datasets.empty()) return;
  for (StoredDataset& d : index.datasets) {
    const StoredTensor& tensor = index.tensors[to_size(d.tensor)];
    const auto [at, is_new] = numbers_.try_emplace(tensor.name, static_cast<std::int64_t>(manifest_.tensors.size()));
    if (is_new) manifest_.tensors.push_back(tensor);
    const StoredTensor& known = manifest_.tensors[to_size(at->second)];
    require(known.type == tensor.type && known.shape == tensor.shape, "two ranks hold different tensors of one name");
    d.tensor = at->second;
    d.shard = static_cast<std::int64_t>(manifest_.shards.size());
    manifest_.datasets.push_back(std::move(d));
  }
  manifest_.shards.push_back(index.shard);
}

Manifest merged(const CheckpointFacts& facts, std::vector<ShardIndex> shards) {
  ManifestBuilder builder(facts);
  for (ShardIndex& index : shards) builder.add(std::move(index));
  return builder.take();
}

}  // namespace forge

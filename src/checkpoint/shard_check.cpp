#include "checkpoint/shard_check.hpp"

#include <algorithm>

#include "checkpoint/disk_reader.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// The bytes of a shard as they come, chunk by chunk; what belongs to none goes into a hash of its own.
class ShardCheck {
 public:
  ShardCheck(const std::vector<StoredTensor>& tensors, const std::vector<const StoredDataset*>& datasets) {
    for (const StoredDataset* dataset : datasets)
      for (const StoredChunk& chunk : dataset->chunks)
        chunks_.push_back({&chunk, &tensors[to_size(dataset->tensor)].name});
    std::sort(chunks_.begin(), chunks_.end(),
              [](const Chunk& a, const Chunk& b) { return a.stored->offset < b.stored->offset; });
  }

  void add(std::span<const std::byte> bytes, const std::string& path, std::vector<std::string>& findings) {
    while (!bytes.empty()) {
      const bool within = next_ < chunks_.size() && at_ >= chunks_[next_].stored->offset;
      const std::uint64_t end = within                   ? chunks_[next_].stored->offset + chunks_[next_].stored->bytes
                                : next_ < chunks_.size() ? chunks_[next_].stored->offset
                                                         : at_ + bytes.size();
      const auto part = bytes.first(to_size(std::min<std::uint64_t>(bytes.size(), end - at_)));
      (within ? *hash_ : rest_).add(part);
      at_ += part.size();
      bytes = bytes.subspan(part.size());
      if (within && at_ == end) end_chunk(path, findings);
    }
  }

  Hash rest() { return rest_.finish(); }
  bool complete() const { return next_ == chunks_.size(); }

 private:
  struct Chunk {
    const StoredChunk* stored;
    const std::string* tensor;
  };

  void end_chunk(const std::string& path, std::vector<std::string>& findings) {
    const StoredChunk& chunk = *chunks_[next_].stored;
    if (hash_->finish() != chunk.hash)
      findings.push_back(path + ": bytes " + std::to_string(chunk.offset) + " to " +
                         std::to_string(chunk.offset + chunk.bytes - 1) + ", of " + *chunks_[next_].tensor +
                         ", are damaged");
    ++next_;
    hash_ = std::make_unique<Sha256>();
  }

  std::vector<Chunk> chunks_;  // in the order of the file
  std::size_t next_ = 0;
  std::uint64_t at_ = 0;
  Sha256 rest_;
  std::unique_ptr<Sha256> hash_ = std::make_unique<Sha256>();  // of the chunk that is being read
};

}  // namespace

std::vector<std::string> shard_damage(const std::string& path, const StoredShard& shard,
                                      const std::vector<StoredTensor>& tensors,
                                      const std::vector<const StoredDataset*>& datasets,
                                      const std::function<void()>& between) {
  std::vector<std::string> findings;
  const auto read = [&]() -> std::vector<std::string> {
    DiskReader file(path, "shard");
    if (file.size() != shard.bytes)
      return {path + " has " + std::to_string(file.size()) + " bytes, the manifest says " +
              std::to_string(shard.bytes)};
    ShardCheck check(tensors, datasets);
    for (auto bytes = file.next(); !bytes.empty(); bytes = file.next()) {
      check.add(bytes, path, findings);
      if (between) between();
    }
    if (!check.complete() || check.rest() != shard.rest)
      findings.push_back(path + ": bytes outside of the tensors' chunks are damaged");
    return findings;
  };
  try {
    return read();
  } catch (const NotPermitted& error) {
    throw IoFailed(error.what());
  } catch (const BadInput& error) {
    findings.push_back(error.what());
  }
  return findings;
}

}  // namespace forge

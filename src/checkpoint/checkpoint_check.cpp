#include <algorithm>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/shard_check.hpp"
#include "core/in_parallel.hpp"

namespace forge {

namespace {

std::vector<std::string> verify_shard(const std::string& directory, const Manifest& manifest, std::size_t number,
                                      const std::function<void()>& between = {}) {
  std::vector<const StoredDataset*> datasets;
  for (const StoredDataset& d : manifest.datasets)
    if (d.shard == static_cast<std::int64_t>(number)) datasets.push_back(&d);
  const StoredShard& shard = manifest.shards[number];
  return shard_damage(directory + "/" + shard_name(shard.number), shard, manifest.tensors, datasets, between);
}

// Findings of f(i) for i < count, `threads` at a time, in their order.
template <class F>
std::vector<std::string> found_by_threads(std::size_t count, int threads, F f) {
  std::vector<std::vector<std::string>> found(count);
  in_parallel(
      count, [&](std::size_t i) { found[i] = f(i); }, std::max(1, threads));
  std::vector<std::string> findings;
  for (const auto& of_one : found) findings.insert(findings.end(), of_one.begin(), of_one.end());
  return findings;
}

// The findings of f(tables) in each wanted piece of the manifest; a damaged piece is a finding, too. A manifest of one
// piece is read with the datasets `kept`.
template <class Wanted, class F>
std::vector<std::string> found_by_pieces(const std::string& directory, const DatasetFilter& kept, Wanted wanted, F f) {
  std::vector<std::string> findings;
  const auto look = [&](auto find) {
    try {
      find();
    } catch (const BadCheckpoint& error) {
      findings.push_back(error.what());
    }
  };
  look([&] {
    const ManifestFiles files(directory);
    for (std::size_t p = 0; p < files.pieces(); ++p) {
      if (files.in_pieces() && !wanted(files.list()[p].shards, files.list().back().shards.end)) continue;
      look([&] {
        const auto found = f(files.read_piece(p, files.in_pieces() ? DatasetFilter{} : kept), files);
        findings.insert(findings.end(), found.begin(), found.end());
      });
    }
  });
  return findings;
}

}  // namespace

// Of a manifest of one piece each takes one shard in `parts`; of one in pieces shards that follow each other, so that
// few pieces are read by several ranks.
std::vector<std::string> verify_part(const std::string& directory, int part, int parts,
                                     const std::function<void()>& between) {
  const auto own_numbers = [&](std::int64_t end) { return Range{end * part / parts, end * (part + 1) / parts}; };
  const auto takes_row = [&](std::int64_t row) { return row % parts == part; };
  const auto find = [&](const Manifest& manifest, const ManifestFiles& files) {
    std::vector<std::string> findings;
    for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
      if (files.in_pieces()) {
        const Range own = own_numbers(files.list().back().shards.end);
        if (manifest.shards[i].number < own.begin || manifest.shards[i].number >= own.end) continue;
      } else if (!takes_row(static_cast<std::int64_t>(i))) {
        continue;
      }
      const auto found = verify_shard(directory, manifest, i, between);
      findings.insert(findings.end(), found.begin(), found.end());
    }
    return findings;
  };
  return found_by_pieces(
      directory, {[&](const StoredDataset& dataset, const StoredTensor&) { return takes_row(dataset.shard); }},
      [&](const Range& shards, std::int64_t end) { return !intersection(shards, own_numbers(end)).empty(); }, find);
}

std::vector<std::string> verify_checkpoint(const std::string& directory, int threads) {
  return found_by_pieces(
      directory, {}, [](const Range&, std::int64_t) { return true; },
      [&](const Manifest& manifest, const ManifestFiles&) {
        return found_by_threads(manifest.shards.size(), threads,
                                [&](std::size_t i) { return verify_shard(directory, manifest, i); });
      });
}

}  // namespace forge

#include "checkpoint/manifest_pieces.hpp"

#include <algorithm>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// f(index), of the shards of all ranks in their order; at the root.
template <class F>
void collect_indexes(Communicator& ranks, const std::string& index, Heartbeat* heartbeat, F f) {
  ranks.collect_host(index, 0, [&](const std::string& text) {
    f(shard_index_from(text));
    if (heartbeat) heartbeat->beat();
  });
}

}  // namespace

std::string piece_name(std::int64_t number) {
  return formatted("manifest_%05lld.h5", static_cast<long long>(number));
}

void PieceReach::add(const StoredDataset& dataset) {
  elements += dataset.elements;
  for (const StoredPiece& stored : dataset.pieces) box = box.extent.empty() ? stored.box : enclosing(box, stored.box);
}

PieceSummary summary_of(const Manifest& manifest, const ManifestPiece& piece) {
  PieceSummary summary{piece, manifest.tensors, {}};
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t)
    summary.reaches.push_back({0, static_cast<std::int64_t>(t), 0, {}});
  for (const StoredDataset& dataset : manifest.datasets) summary.reaches[to_size(dataset.tensor)].add(dataset);
  return summary;
}

ManifestRoot merged(const CheckpointFacts& facts, std::vector<PieceSummary> pieces) {
  ManifestRoot root{facts, {}, {}, {}};
  TensorList tensors(root.tensors);
  for (PieceSummary& summary : pieces) {
    const auto first = static_cast<std::ptrdiff_t>(root.reaches.size());
    for (PieceReach& reach : summary.reaches)
      root.reaches.push_back({static_cast<std::int64_t>(root.pieces.size()),
                              tensors.number_of(summary.tensors[to_size(reach.tensor)]), reach.elements,
                              std::move(reach.box)});
    std::sort(root.reaches.begin() + first, root.reaches.end(),
              [](const PieceReach& a, const PieceReach& b) { return a.tensor < b.tensor; });
    root.pieces.push_back(summary.piece);
  }
  return root;
}

ManifestWriter::ManifestWriter(Communicator& ranks, int shards_of_piece)
    : ranks_(ranks), shards_of_piece_(shards_of_piece) {
  if (ranks.size() <= shards_of_piece) return;
  group_ = ranks.part([=](int rank) { return rank / shards_of_piece; });
  firsts_ = ranks.part([=](int rank) { return rank % shards_of_piece == 0 ? 0 : -1; });
}

ManifestWriter::File ManifestWriter::write_piece(const std::string& directory, const std::string& index,
                                                 Heartbeat* heartbeat) {
  summary_.clear();
  ManifestBuilder builder({});
  collect_indexes(*group_, index, heartbeat, [&](ShardIndex shard) { builder.add(std::move(shard)); });
  const Manifest manifest = builder.take();
  if (!firsts_ || manifest.shards.empty()) return {};
  const std::int64_t first = ranks_.rank(), number = first / shards_of_piece_;
  const std::string name = piece_name(number), path = directory + "/" + name;
  forge::write_piece(path, manifest, heartbeat);
  ManifestPiece piece{number,
                      {first, std::min<std::int64_t>(first + shards_of_piece_, ranks_.size())},
                      static_cast<std::int64_t>(manifest.shards.size()),
                      as_damage([&] { return FileHandle::open_to_read(path, "file").size(); }),
                      hash_of_file(path)};
  summary_ = to_text(summary_of(manifest, piece));
  return {name, piece.hash};
}

void ManifestWriter::write_manifest(const std::string& directory, const CheckpointFacts& facts,
                                    const std::string& index, Heartbeat* heartbeat) {
  const std::string path = directory + "/" + manifest_name;
  if (!group_) {
    ManifestBuilder builder(facts);
    collect_indexes(ranks_, index, heartbeat, [&](ShardIndex shard) { builder.add(std::move(shard)); });
    if (ranks_.rank() == 0) forge::write_manifest(path, builder.take(), heartbeat);
    return;
  }
  if (!firsts_) return;
  std::vector<PieceSummary> pieces;
  firsts_->collect_host(summary_, 0, [&](const std::string& text) {
    if (!text.empty()) pieces.push_back(piece_summary_from(text));
    if (heartbeat) heartbeat->beat();
  });
  if (ranks_.rank() == 0) write_root(path, merged(facts, std::move(pieces)), heartbeat);
}

}  // namespace forge

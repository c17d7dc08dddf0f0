#include <cstring>
#include <type_traits>

#include "checkpoint/manifest_pieces.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// A rank's list, one value behind the other, on its way to a rank of the same program.
class Packer {
 public:
  template <class V>
  void value(const V& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class List>
  void size(const List& list) {
    value(static_cast<std::int64_t>(list.size()));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// The way back, with the same calls.
class Unpacker {
 public:
  explicit Unpacker(const std::string& text) : text_(text) {}
  template <class V>
  void value(V& value) {
    static_assert(std::is_trivially_copyable_v<V>);
    require(text_.size() - at_ >= sizeof value, "a rank's list of tensors is cut");
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
  }
  template <class List>
  void size(List& list) {
    std::int64_t size;
    value(size);
    list.resize(to_size(size));
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

template <class Way, class List>
void pass_values(Way& way, List& list) {
  way.size(list);
  for (auto& value : list) way.value(value);
}

template <class Way, class Tensors>
void pass_tensors(Way& way, Tensors& tensors) {
  way.size(tensors);
  for (auto& tensor : tensors) {
    pass_values(way, tensor.name);
    way.value(tensor.type);
    pass_values(way, tensor.shape);
  }
}

template <class Way, class Index>
void pass_index(Way& way, Index& index) {
  way.value(index.shard);
  pass_tensors(way, index.tensors);
  way.size(index.datasets);
  for (auto& set : index.datasets) {
    for (auto* number : {&set.tensor, &set.elements, &set.chunk_elements}) way.value(*number);
    way.size(set.pieces);
    for (auto& piece : set.pieces) {
      pass_values(way, piece.box.offset);
      pass_values(way, piece.box.extent);
      way.value(piece.first);
    }
    pass_values(way, set.chunks);
  }
}

template <class Way, class Summary>
void pass_summary(Way& way, Summary& summary) {
  way.value(summary.piece);
  pass_tensors(way, summary.tensors);
  way.size(summary.reaches);
  for (auto& reach : summary.reaches) {
    for (auto* number : {&reach.tensor, &reach.elements}) way.value(*number);
    pass_values(way, reach.box.offset);
    pass_values(way, reach.box.extent);
  }
}

}  // namespace

std::string shard_name(std::int64_t number) {
  return formatted("shard_%05lld.h5", static_cast<long long>(number));
}

std::string to_text(const ShardIndex& index) {
  Packer out;
  pass_index(out, index);
  return out.take();
}

ShardIndex shard_index_from(const std::string& text) {
  Unpacker in(text);
  ShardIndex index;
  pass_index(in, index);
  return index;
}

std::string to_text(const PieceSummary& summary) {
  Packer out;
  pass_summary(out, summary);
  return out.take();
}

PieceSummary piece_summary_from(const std::string& text) {
  Unpacker in(text);
  PieceSummary summary;
  pass_summary(in, summary);
  return summary;
}

std::int64_t TensorList::number_of(const StoredTensor& tensor) {
  const auto [at, is_new] = numbers_.try_emplace(tensor.name, static_cast<std::int64_t>(tensors_.size()));
  if (is_new) tensors_.push_back(tensor);
  const StoredTensor& known = tensors_[to_size(at->second)];
  require(known.type == tensor.type && known.shape == tensor.shape, "two ranks hold different tensors of one name");
  return at->second;
}

void ManifestBuilder::add(ShardIndex index) {
  if (index.datasets.empty()) return;
  for (StoredDataset& d : index.datasets) {
    d.tensor = tensors_.number_of(index.tensors[to_size(d.tensor)]);
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

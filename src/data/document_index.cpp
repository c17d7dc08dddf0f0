#include "data/document_index.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "text/token_format.hpp"

namespace forge {

namespace {

constexpr std::int64_t piece = 8192;  // numbers that are read at a time
constexpr char megatron_magic[megatron_magic_bytes + 1] = "MMIDIDX\0\0";

std::string number(std::int64_t value) {
  return std::to_string(value);
}

[[noreturn]] void refuse(const std::string& path, std::int64_t offset, const std::string& what) {
  throw BadInput(path + ": index at byte offset " + number(offset) + ": " + what);
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// An array of integers in a file.
template <class T>
struct StoredArray {
  std::int64_t offset = 0, count = 0;

  std::int64_t end() const { return offset + count * static_cast<std::int64_t>(sizeof(T)); }
  std::int64_t offset_of(std::int64_t i) const { return offset + i * static_cast<std::int64_t>(sizeof(T)); }
  void read(const FileHandle& file, std::int64_t first, std::span<T> out) const {
    file.read_at(static_cast<std::uint64_t>(offset_of(first)), out.data(), out.size_bytes());
  }
};

// visit(i, value) of all numbers of an array, piece by piece.
template <class T, class Visit>
void for_each(const FileHandle& file, const StoredArray<T>& array, Visit visit) {
  std::vector<T> values(to_size(std::min(piece, array.count)));
  for (std::int64_t first = 0; first < array.count; first += piece) {
    const auto part = std::span(values).first(to_size(std::min(piece, array.count - first)));
    array.read(file, first, part);
    for (std::size_t i = 0; i < part.size(); ++i) visit(first + static_cast<std::int64_t>(i), part[i]);
  }
}

struct MegatronLayout {
  DType type{};
  StoredArray<std::int32_t> lengths;
  StoredArray<std::int64_t> offsets, bounds;
};

DType megatron_type(std::uint8_t code, const std::string& path) {
  switch (code) {
    case 1:
      return DType::u8;
    case 4:
      return DType::i32;
    case 5:
      return DType::i64;
    case 8:
      return DType::u16;
    default:
      refuse(path, 17, "type code " + number(code) + "; legal: 1 (uint8), 4 (int32), 5 (int64) or 8 (uint16)");
  }
}

MegatronLayout read_layout(const FileHandle& file, const std::string& path) {
  constexpr std::int64_t header = 34;
  const auto bytes = static_cast<std::int64_t>(file.size());
  std::array<std::byte, header> head{};
  if (bytes < header) refuse(path, bytes, "the file ends within the header of 34 bytes");
  file.read_at(0, head.data(), head.size());
  if (!has_megatron_magic(head)) refuse(path, 0, "the magic string MMIDIDX of a Megatron index is missing");
  if (const auto version = value_at<std::uint64_t>(head, 9); version != 1)
    refuse(path, 9, "version " + std::to_string(version) + "; legal: 1");
  const DType type = megatron_type(value_at<std::uint8_t>(head, 17), path);
  const auto sequences = value_at<std::uint64_t>(head, 18), bounds = value_at<std::uint64_t>(head, 26);
  const auto rest = static_cast<std::uint64_t>(bytes - header);
  const bool fits = sequences <= rest / 12 && bounds <= (rest - 12 * sequences) / 8;
  const std::uint64_t used = fits ? 12 * sequences + 8 * bounds : 0;
  if (!fits || (used != rest && used + sequences != rest))
    refuse(path, 18,
           "the header promises " + std::to_string(sequences) + " sequences and " + std::to_string(bounds) +
               " bounds of documents, which a file of " + number(bytes) + " bytes doesn't hold");
  if (bounds < 1) refuse(path, 26, "no bound of a document; legal: at least the first, 0");
  MegatronLayout layout{type, {header, static_cast<std::int64_t>(sequences)}, {}, {}};
  layout.offsets = {layout.lengths.end(), layout.lengths.count};
  layout.bounds = {layout.offsets.end(), static_cast<std::int64_t>(bounds)};
  return layout;
}

// Bytes of all sequences, which follow one another.
std::int64_t check_sequences(const FileHandle& file, const MegatronLayout& layout, const std::string& path) {
  const auto size = static_cast<std::int64_t>(size_of(layout.type));
  std::vector<std::int32_t> lengths(to_size(std::min(piece, layout.lengths.count)));
  std::int64_t expected = 0;
  for_each(file, layout.offsets, [&](std::int64_t i, std::int64_t offset) {
    if (i % piece == 0)
      layout.lengths.read(file, i, std::span(lengths).first(to_size(std::min(piece, layout.lengths.count - i))));
    const std::int64_t length = lengths[to_size(i % piece)];
    if (length < 0)
      refuse(path, layout.lengths.offset_of(i), "sequence " + number(i) + " has " + number(length) + " tokens");
    if (offset != expected)
      refuse(path, layout.offsets.offset_of(i),
             "sequence " + number(i) + " begins at byte " + number(offset) +
                 " of the .bin file; legal: " + number(expected) + ", behind the one before");
    expected += length * size;  // below 2^31 · 8 for each of at most 2^63 / 12 sequences of a file: checked next
    if (expected > std::numeric_limits<std::int64_t>::max() / 2) refuse(path, layout.offsets.offset_of(i), "too large");
  });
  return expected;
}

void check_bounds(const FileHandle& file, const MegatronLayout& layout, const std::string& path) {
  std::int64_t before = 0;
  for_each(file, layout.bounds, [&](std::int64_t i, std::int64_t bound) {
    const bool good = i == 0 ? bound == 0 : bound >= before && bound <= layout.lengths.count;
    if (!good)
      refuse(path, layout.bounds.offset_of(i),
             "bound " + number(i) + " of documents is " + number(bound) +
                 "; legal: " + (i == 0 ? "0" : number(before) + " to " + number(layout.lengths.count)));
    before = bound;
  });
  if (before != layout.lengths.count)
    refuse(path, layout.bounds.offset_of(layout.bounds.count - 1),
           "the last document ends with sequence " + number(before) + " of " + number(layout.lengths.count));
}

class MegatronDocuments final : public DocumentIndex {
 public:
  MegatronDocuments(FileHandle file, std::string path, const MegatronLayout& layout, std::int64_t tokens)
      : file_(std::move(file)), layout_(layout), tokens_(tokens) {
    path_ = std::move(path);
    documents_ = layout.bounds.count - 1;
  }
  void starts(std::int64_t first, std::span<std::int64_t> out) const override {
    layout_.bounds.read(file_, first, out);
    const auto size = static_cast<std::int64_t>(size_of(layout_.type));
    // Mostly a document is one sequence, and their offsets stand in a row.
    std::size_t i = 0;
    while (i < out.size()) {
      std::size_t end = i + 1;
      while (end < out.size() && out[end] == out[end - 1] + 1) ++end;
      const std::int64_t sequence = out[i], known = std::clamp<std::int64_t>(layout_.offsets.count - sequence, 0,
                                                                             static_cast<std::int64_t>(end - i));
      const auto part = out.subspan(i, to_size(known));
      layout_.offsets.read(file_, sequence, part);
      for (std::int64_t& offset : part) offset /= size;
      for (i += part.size(); i < end; ++i) out[i] = tokens_;
    }
  }

 private:
  FileHandle file_;
  MegatronLayout layout_;
  std::int64_t tokens_;
};

class DsDocuments final : public DocumentIndex {
 public:
  DsDocuments(FileHandle file, std::string path, std::int64_t documents) : file_(std::move(file)), ends_{0, documents} {
    path_ = std::move(path);
    documents_ = documents;
  }
  const FileHandle& file() const { return file_; }
  const StoredArray<std::int64_t>& ends() const { return ends_; }
  void starts(std::int64_t first, std::span<std::int64_t> out) const override {
    if (first == 0 && !out.empty()) {
      out[0] = 0;
      out = out.subspan(1);
    } else {
      --first;
    }
    if (!out.empty()) ends_.read(file_, first, out);
  }

 private:
  FileHandle file_;
  StoredArray<std::int64_t> ends_;
};

}  // namespace

std::int64_t DocumentIndex::start(std::int64_t document) const {
  std::int64_t value = 0;
  starts(document, {&value, 1});
  return value;
}

std::int64_t DocumentIndex::document_of(std::int64_t token) const {
  std::int64_t low = 0, high = documents_;  // start(low) <= token < start(high)
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (start(middle) <= token ? low : high) = middle;
  }
  return low;
}

bool has_megatron_magic(std::span<const std::byte> head) {
  return head.size() >= megatron_magic_bytes && std::memcmp(head.data(), megatron_magic, megatron_magic_bytes) == 0;
}

MegatronFile open_megatron_index(const std::string& path, const std::string& bin_path, std::int64_t bin_bytes) {
  FileHandle file = FileHandle::open_to_read(path, "Megatron index");
  const MegatronLayout layout = read_layout(file, path);
  const std::int64_t bytes = check_sequences(file, layout, path);
  if (bytes != bin_bytes)
    throw BadInput(path + ": its sequences take " + number(bytes) + " bytes, but " + bin_path + " has " +
                   number(bin_bytes));
  check_bounds(file, layout, path);
  const std::int64_t tokens = bytes / static_cast<std::int64_t>(size_of(layout.type));
  return {layout.type, tokens, std::make_shared<MegatronDocuments>(std::move(file), path, layout, tokens)};
}

std::shared_ptr<const DocumentIndex> open_ds_index(const std::string& path, std::int64_t tokens) {
  FileHandle file = FileHandle::open_to_read(path, "index of documents");
  const auto bytes = static_cast<std::int64_t>(file.size());
  if (bytes % 8 != 0 || bytes == 0)
    refuse(path, bytes, "the size of the file, " + number(bytes) + " bytes, is no positive multiple of 8");
  auto index = std::make_shared<DsDocuments>(std::move(file), path, bytes / 8);
  std::int64_t before = 0;
  for_each(index->file(), index->ends(), [&](std::int64_t i, std::int64_t end) {
    if (end < before || end > tokens)
      refuse(path, 8 * i,
             "document " + number(i) + " ends behind token " + number(end) + "; legal: " + number(before) + " to " +
                 number(tokens));
    before = end;
  });
  if (before != tokens)
    refuse(path, bytes - 8, "the last document ends behind token " + number(before) + " of " + number(tokens));
  return index;
}

}  // namespace forge

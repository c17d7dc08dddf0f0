#include <algorithm>
#include <set>

#include "checkpoint/manifest.hpp"
#include "checkpoint/table_file.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 56;

// Everything below comes from the file: each number is checked before it is used.
class ManifestReader {
 public:
  ManifestReader(const std::string& path, const DatasetFilter& wanted) : path_(path), file_(path), wanted_(wanted) {}

  Manifest read() {
    if (const std::int64_t format = file_.number("format"); format != manifest_format)
      bad("is of format " + std::to_string(format) + ", this version reads " + std::to_string(manifest_format));
    read_facts();
    read_tensors();
    read_shards();
    read_datasets();
    check_counts();
    check_overlaps();
    return std::move(m_);
  }

 private:
  [[noreturn]] void bad(const std::string& what) const { throw BadCheckpoint(path_ + " " + what); }

  template <class T>
  Table<T> table(const char* path, std::int64_t columns) const {
    RowReader<T> rows(file_, path, columns);
    Table<T> table{columns, {}};
    table.values.reserve(to_size(rows.rows() * columns));
    while (rows.left() > 0) {
      const T* row = rows.next();
      table.values.insert(table.values.end(), row, row + columns);
    }
    return table;
  }
  std::string text(const char* path) const {
    const auto t = table<std::uint8_t>(path, 1);
    return {t.values.begin(), t.values.end()};
  }
  static Hash hash(const std::uint8_t* row) {
    Hash hash;
    std::copy_n(row, hash.size(), hash.begin());
    return hash;
  }

  std::int64_t amount(const char* name) const {
    const std::int64_t value = file_.number(name);
    if (value < 0) bad(std::string("has a negative ") + name);
    return value;
  }

  void read_facts() {
    CheckpointFacts& f = m_.facts;
    f.step = amount("step");
    f.tokens = amount("tokens");
    f.samples = amount("samples");
    f.updates = amount("updates");
    f.bad_in_a_row = amount("not_finite_in_a_row");
    f.seed = static_cast<std::uint64_t>(file_.number("seed"));
    f.ranks = amount("ranks");
    f.deck = text("/run/deck");
    f.build = text("/run/build");
    f.data = text("/run/data");
    if (file_.has("/run/spikes")) f.spikes = text("/run/spikes");
  }

  void read_tensors() {
    const auto t = table<std::int64_t>("/placement/tensors", 2 + most_dimensions);
    const std::string names = text("/placement/tensor_names");
    std::set<std::string> seen;
    std::size_t at = 0;
    for (std::int64_t r = 0; r < t.rows(); ++r) {
      const std::size_t end = names.find('\n', at);
      if (end == std::string::npos) bad("has fewer names than tensors");
      StoredTensor tensor;
      tensor.name = names.substr(at, end - at);
      at = end + 1;
      const std::int64_t* row = t.row(r);
      if (row[0] < 0 || row[0] > static_cast<std::int64_t>(DType::bf16)) bad("has a tensor of an unknown type");
      if (row[1] < 1 || row[1] > static_cast<std::int64_t>(most_dimensions)) bad("has a tensor of no legal rank");
      tensor.type = static_cast<DType>(row[0]);
      std::int64_t elements = 1;
      for (std::int64_t d = 0; d < row[1]; ++d) {
        const std::int64_t extent = row[2 + d];
        if (extent < 1 || extent > most_elements / elements) bad("has a tensor of no legal shape");
        elements *= extent;
        tensor.shape.push_back(extent);
      }
      if (tensor.name.empty() || !seen.insert(tensor.name).second) bad("has two tensors of one name");
      m_.tensors.push_back(std::move(tensor));
    }
    if (at != names.size()) bad("has more names than tensors");
  }

  void read_shards() {
    const auto t = table<std::int64_t>("/placement/shards", 2);
    const auto hashes = table<std::uint8_t>("/placement/shard_hashes", 32);
    if (hashes.rows() != t.rows()) bad("has not one hash for each shard");
    std::set<std::int64_t> numbers;
    for (std::int64_t r = 0; r < t.rows(); ++r) {
      if (t.row(r)[0] < 0 || t.row(r)[1] < 1 || !numbers.insert(t.row(r)[0]).second) bad("has a wrong list of shards");
      m_.shards.push_back({t.row(r)[0], static_cast<std::uint64_t>(t.row(r)[1]), hash(hashes.row(r))});
    }
  }

  void read_datasets() {
    RowReader<std::int64_t> sets(file_, "/placement/datasets", 6),
        pieces(file_, "/placement/pieces", 1 + 2 * most_dimensions), chunks(file_, "/placement/chunks", 2);
    RowReader<std::uint8_t> hashes(file_, "/placement/chunk_hashes", 32);
    if (hashes.rows() != chunks.rows()) bad("has not one hash for each chunk");
    elements_.assign(m_.tensors.size(), 0);
    while (sets.left() > 0) {
      const std::int64_t* row = sets.next();
      StoredDataset d;
      d.tensor = row[0];
      d.shard = row[1];
      d.elements = row[2];
      d.chunk_elements = row[3];
      if (d.tensor < 0 || d.tensor >= static_cast<std::int64_t>(m_.tensors.size()) || d.shard < 0 ||
          d.shard >= static_cast<std::int64_t>(m_.shards.size()) || d.elements < 1 || d.elements > most_elements ||
          d.chunk_elements < 1 || d.chunk_elements > d.elements || row[4] < 1 || row[4] > pieces.left() || row[5] < 1 ||
          row[5] > chunks.left())
        bad("has a wrong row of placement/datasets");
      filled_ = 0;
      for (std::int64_t i = 0; i < row[4]; ++i) read_piece(pieces.next(), d);
      if (filled_ != d.elements) bad("has a dataset that its pieces don't fill");
      for (std::int64_t i = 0; i < row[5]; ++i) read_chunk(chunks.next(), hash(hashes.next()), d);
      if (row[5] != (d.elements + d.chunk_elements - 1) / d.chunk_elements)
        bad("has a dataset with a wrong number of chunks");
      std::int64_t& n = elements_[to_size(d.tensor)];
      if (d.elements > most_elements - n) bad("has more elements than its tensors");
      n += d.elements;
      if (!wanted_ || wanted_(d, m_.tensors[to_size(d.tensor)])) m_.datasets.push_back(std::move(d));
    }
    if (pieces.left() > 0 || chunks.left() > 0) bad("has pieces or chunks of no dataset");
  }

  void read_piece(const std::int64_t* row, StoredDataset& d) {
    const Extents& shape = m_.tensors[to_size(d.tensor)].shape;
    StoredPiece piece;
    piece.first = row[0];
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::int64_t offset = row[1 + i], extent = row[1 + most_dimensions + i];
      if (offset < 0 || extent < 1 || extent > shape[i] || offset > shape[i] - extent)
        bad("has a piece outside of its tensor");
      piece.box.offset.push_back(offset);
      piece.box.extent.push_back(extent);
    }
    if (piece.first != filled_ || piece.box.size() > d.elements - filled_)
      bad("has pieces that don't follow each other");
    filled_ += piece.box.size();
    d.pieces.push_back(std::move(piece));
  }

  void read_chunk(const std::int64_t* row, const Hash& hash, StoredDataset& d) {
    const std::uint64_t file = m_.shards[to_size(d.shard)].bytes;
    const auto offset = static_cast<std::uint64_t>(row[0]), bytes = static_cast<std::uint64_t>(row[1]);
    const std::size_t size = size_of(m_.tensors[to_size(d.tensor)].type);
    if (row[0] < 0 || row[1] < 0 || bytes > file || offset > file - bytes ||
        bytes != static_cast<std::uint64_t>(d.chunk_elements) * size + 4)
      bad("has a chunk outside of its shard, or of another size");
    d.chunks.push_back({offset, bytes, hash});
  }

  void check_counts() const {
    for (std::size_t t = 0; t < elements_.size(); ++t)
      if (elements_[t] != element_count(m_.tensors[t].shape))
        bad("doesn't place every element of " + m_.tensors[t].name + " once");
  }

  void check_overlaps() const {
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> chunks(m_.shards.size());
    for (const StoredDataset& d : m_.datasets)
      for (const StoredChunk& c : d.chunks) chunks[to_size(d.shard)].emplace_back(c.offset, c.bytes);
    for (auto& of_shard : chunks) {
      std::sort(of_shard.begin(), of_shard.end());
      for (std::size_t i = 1; i < of_shard.size(); ++i)
        if (of_shard[i].first < of_shard[i - 1].first + of_shard[i - 1].second) bad("has chunks that overlap");
    }
  }

  std::string path_;
  TableFile file_;
  const DatasetFilter& wanted_;
  Manifest m_;
  std::int64_t filled_ = 0;             // elements of the dataset that is being read
  std::vector<std::int64_t> elements_;  // of the datasets of each tensor
};

}  // namespace

Manifest read_manifest(const std::string& path, const DatasetFilter& wanted) {
  return ManifestReader(path, wanted).read();
}

}  // namespace forge

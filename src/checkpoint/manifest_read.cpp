#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/manifest_pieces.hpp"
#include "checkpoint/table_file.hpp"
#include "checkpoint/tensor_parts.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 56;

// Everything below comes from the file: each number is checked before it is used.
class TablesReader {
 public:
  explicit TablesReader(const TableFile& file) : path_(file.path()), file_(file) {}

  // Of a manifest.h5, or of a piece of one.
  void check_format(std::int64_t legal) const {
    if (const std::int64_t format = file_.number("format"); format != legal)
      bad("is of format " + std::to_string(format) + ", this version reads " + std::to_string(whole_format) + " and " +
          std::to_string(pieces_format));
  }
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

  CheckpointFacts read_facts() const {
    CheckpointFacts f;
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
    return f;
  }

  std::vector<StoredTensor> read_tensors() const {
    std::vector<StoredTensor> tensors;
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
      tensors.push_back(std::move(tensor));
    }
    if (at != names.size()) bad("has more names than tensors");
    return tensors;
  }

 protected:
  // Offset and extent, four each, of a box in a tensor of this shape.
  Box box_of(const std::int64_t* row, const Extents& shape) const {
    Box box;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::int64_t offset = row[i], extent = row[most_dimensions + i];
      if (offset < 0 || extent < 1 || extent > shape[i] || offset > shape[i] - extent)
        bad("has a piece outside of its tensor");
      box.offset.push_back(offset);
      box.extent.push_back(extent);
    }
    return box;
  }

  std::string path_;
  const TableFile& file_;
};

// What some shards hold: of a whole manifest, or of a piece.
class ShardTablesReader : public TablesReader {
 public:
  // `tensors`: of the file.
  ShardTablesReader(const TableFile& file, const std::vector<StoredTensor>& tensors, const DatasetFilter& wanted)
      : TablesReader(file), tensors_(tensors), wanted_(wanted), reaches_(tensors.size()) {}

  void read() {
    read_shards();
    read_datasets();
    check_overlaps();
  }
  void read_shards() {
    const auto t = table<std::int64_t>("/placement/shards", 2);
    const auto hashes = table<std::uint8_t>("/placement/shard_hashes", 32);
    if (hashes.rows() != t.rows()) bad("has not one hash for each shard");
    std::set<std::int64_t> numbers;
    for (std::int64_t r = 0; r < t.rows(); ++r) {
      if (t.row(r)[0] < 0 || t.row(r)[1] < 1 || !numbers.insert(t.row(r)[0]).second) bad("has a wrong list of shards");
      shards.push_back({t.row(r)[0], static_cast<std::uint64_t>(t.row(r)[1]), hash(hashes.row(r))});
    }
  }

  std::vector<StoredShard> shards;
  std::vector<StoredDataset> datasets;  // that are wanted
  // By tensor: the elements and the box of all its datasets in this file.
  const std::vector<PieceReach>& reaches() const { return reaches_; }

 private:
  void read_datasets() {
    RowReader<std::int64_t> sets(file_, "/placement/datasets", 6),
        pieces(file_, "/placement/pieces", 1 + 2 * most_dimensions), chunks(file_, "/placement/chunks", 2);
    RowReader<std::uint8_t> hashes(file_, "/placement/chunk_hashes", 32);
    if (hashes.rows() != chunks.rows()) bad("has not one hash for each chunk");
    while (sets.left() > 0) {
      const std::int64_t* row = sets.next();
      StoredDataset d;
      d.tensor = row[0];
      d.shard = row[1];
      d.elements = row[2];
      d.chunk_elements = row[3];
      if (d.tensor < 0 || d.tensor >= static_cast<std::int64_t>(tensors_.size()) || d.shard < 0 ||
          d.shard >= static_cast<std::int64_t>(shards.size()) || d.elements < 1 || d.elements > most_elements ||
          d.chunk_elements < 1 || d.chunk_elements > d.elements || row[4] < 1 || row[4] > pieces.left() || row[5] < 1 ||
          row[5] > chunks.left())
        bad("has a wrong row of placement/datasets");
      filled_ = 0;
      for (std::int64_t i = 0; i < row[4]; ++i) read_piece(pieces.next(), d);
      if (filled_ != d.elements) bad("has a dataset that its pieces don't fill");
      for (std::int64_t i = 0; i < row[5]; ++i) read_chunk(chunks.next(), hash(hashes.next()), d);
      if (row[5] != (d.elements + d.chunk_elements - 1) / d.chunk_elements)
        bad("has a dataset with a wrong number of chunks");
      add_to_reach(d);
      if (!wanted_.dataset || wanted_.dataset(d, tensors_[to_size(d.tensor)])) datasets.push_back(std::move(d));
    }
    if (pieces.left() > 0 || chunks.left() > 0) bad("has pieces or chunks of no dataset");
  }

  void add_to_reach(const StoredDataset& d) {
    PieceReach& reach = reaches_[to_size(d.tensor)];
    if (d.elements > most_elements - reach.elements) bad("has more elements than its tensors");
    reach.add(d);
  }

  void read_piece(const std::int64_t* row, StoredDataset& d) {
    const StoredPiece piece{box_of(row + 1, tensors_[to_size(d.tensor)].shape), row[0]};
    if (piece.first != filled_ || piece.box.size() > d.elements - filled_)
      bad("has pieces that don't follow each other");
    filled_ += piece.box.size();
    d.pieces.push_back(piece);
  }

  void read_chunk(const std::int64_t* row, const Hash& hash, StoredDataset& d) {
    const std::uint64_t file = shards[to_size(d.shard)].bytes;
    const auto offset = static_cast<std::uint64_t>(row[0]), bytes = static_cast<std::uint64_t>(row[1]);
    const std::size_t size = size_of(tensors_[to_size(d.tensor)].type);
    if (row[0] < 0 || row[1] < 0 || bytes > file || offset > file - bytes ||
        bytes != static_cast<std::uint64_t>(d.chunk_elements) * size + 4)
      bad("has a chunk outside of its shard, or of another size");
    d.chunks.push_back({offset, bytes, hash});
  }

  void check_overlaps() const {
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> chunks(shards.size());
    for (const StoredDataset& d : datasets)
      for (const StoredChunk& c : d.chunks) chunks[to_size(d.shard)].emplace_back(c.offset, c.bytes);
    for (auto& of_shard : chunks) {
      std::sort(of_shard.begin(), of_shard.end());
      for (std::size_t i = 1; i < of_shard.size(); ++i)
        if (of_shard[i].first < of_shard[i - 1].first + of_shard[i - 1].second) bad("has chunks that overlap");
    }
  }

  const std::vector<StoredTensor>& tensors_;
  const DatasetFilter& wanted_;
  std::int64_t filled_ = 0;  // elements of the dataset that is being read
  std::vector<PieceReach> reaches_;
};

// A manifest.h5 of format 2.
class RootReader : public TablesReader {
 public:
  using TablesReader::TablesReader;

  ManifestRoot read() {
    root_.facts = read_facts();
    root_.tensors = read_tensors();
    read_pieces();
    read_reaches();
    return std::move(root_);
  }

 private:
  void read_pieces() {
    const auto t = table<std::int64_t>("/placement/files", 5);
    const auto hashes = table<std::uint8_t>("/placement/file_hashes", 32);
    if (hashes.rows() != t.rows()) bad("has not one hash for each piece");
    std::int64_t end = 0, next = 0;  // behind the piece before
    for (std::int64_t r = 0; r < t.rows(); ++r) {
      const std::int64_t* row = t.row(r);
      const Range shards{row[1], row[2]};
      if (row[0] < next || row[0] == std::numeric_limits<std::int64_t>::max() || shards.begin < end || shards.empty() ||
          row[3] < 1 || row[3] > shards.size() || row[4] < 1)
        bad("has a wrong list of pieces");
      next = row[0] + 1;
      end = shards.end;
      root_.pieces.push_back({row[0], shards, row[3], static_cast<std::uint64_t>(row[4]), hash(hashes.row(r))});
    }
  }

  void read_reaches() {
    RowReader<std::int64_t> rows(file_, "/placement/reach", 3 + 2 * most_dimensions);
    std::vector<std::int64_t> elements(root_.tensors.size(), 0);
    std::pair<std::int64_t, std::int64_t> before{-1, -1};
    while (rows.left() > 0) {
      const std::int64_t* row = rows.next();
      if (row[0] < 0 || row[0] >= static_cast<std::int64_t>(root_.pieces.size()) || row[1] < 0 ||
          row[1] >= static_cast<std::int64_t>(root_.tensors.size()) || std::pair(row[0], row[1]) <= before)
        bad("has a wrong row of placement/reach");
      before = {row[0], row[1]};
      const Extents& shape = root_.tensors[to_size(row[1])].shape;
      PieceReach reach{row[0], row[1], row[2], box_of(row + 3, shape)};
      std::int64_t& n = elements[to_size(row[1])];
      if (reach.elements < 1 || reach.elements > reach.box.size() || reach.elements > element_count(shape) - n)
        bad("has a piece with more elements than its tensor");
      n += reach.elements;
      root_.reaches.push_back(std::move(reach));
    }
    for (std::size_t t = 0; t < elements.size(); ++t)
      if (elements[t] != element_count(root_.tensors[t].shape))
        bad("doesn't place every element of " + root_.tensors[t].name + " once");
  }

  ManifestRoot root_;
};

// Refuses a piece whose tensors have other elements or boxes than the root's rows. `numbers`: those tensors in the
// root.
void check_against_root(const TablesReader& reader, const ShardTablesReader& read, const ManifestRoot& root,
                        std::size_t piece, const std::vector<std::int64_t>& numbers) {
  const ManifestPiece& row = root.pieces[piece];
  if (static_cast<std::int64_t>(read.shards.size()) != row.count)
    reader.bad("has not the shards of its row in manifest.h5");
  for (const StoredShard& shard : read.shards)
    if (shard.number < row.shards.begin || shard.number >= row.shards.end)
      reader.bad("has a shard of another piece of the manifest");
  std::map<std::int64_t, const PieceReach*> expected;
  for (const PieceReach& reach : root.reaches)
    if (reach.piece == static_cast<std::int64_t>(piece)) expected[reach.tensor] = &reach;
  if (expected.size() != numbers.size()) reader.bad("has not the tensors of its rows in manifest.h5");
  for (std::size_t t = 0; t < numbers.size(); ++t) {
    const auto found = expected.find(numbers[t]);
    const PieceReach& here = read.reaches()[t];
    if (found == expected.end() || found->second->elements != here.elements || found->second->box != here.box)
      reader.bad("holds other parts of " + root.tensors[to_size(numbers[t])].name + " than manifest.h5 says");
  }
}

}  // namespace

Manifest read_manifest(const TableFile& file, const DatasetFilter& wanted) {
  const TablesReader reader(file);
  reader.check_format(whole_format);
  Manifest manifest;
  manifest.facts = reader.read_facts();
  manifest.tensors = reader.read_tensors();
  ShardTablesReader read(file, manifest.tensors, wanted);
  read.read();
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t)
    if (read.reaches()[t].elements != element_count(manifest.tensors[t].shape))
      reader.bad("doesn't place every element of " + manifest.tensors[t].name + " once");
  manifest.shards = std::move(read.shards);
  manifest.datasets = std::move(read.datasets);
  return manifest;
}

Manifest read_manifest(const std::string& file) {
  return read_manifest(TableFile(file));
}

ManifestRoot read_root(const TableFile& file) {
  RootReader reader(file);
  reader.check_format(pieces_format);
  return reader.read();
}

std::vector<StoredShard> read_shards(const TableFile& file) {
  const std::vector<StoredTensor> no_tensors;
  const DatasetFilter all;
  ShardTablesReader read(file, no_tensors, all);
  read.read_shards();
  return std::move(read.shards);
}

void read_piece(const TableFile& file, const ManifestRoot& root, std::size_t piece, const DatasetFilter& wanted,
                Manifest& manifest) {
  const TablesReader reader(file);
  reader.check_format(pieces_format);
  const std::vector<StoredTensor> tensors = reader.read_tensors();
  std::map<std::string, std::int64_t> rows;
  for (std::size_t t = 0; t < root.tensors.size(); ++t) rows[root.tensors[t].name] = static_cast<std::int64_t>(t);
  std::vector<std::int64_t> numbers;  // the root's
  for (const StoredTensor& tensor : tensors) {
    const auto found = rows.find(tensor.name);
    if (found == rows.end() || root.tensors[to_size(found->second)].type != tensor.type ||
        root.tensors[to_size(found->second)].shape != tensor.shape)
      reader.bad("has a tensor that manifest.h5 has not, or of another type or shape");
    numbers.push_back(found->second);
  }
  ShardTablesReader read(file, tensors, wanted);
  read.read();
  check_against_root(reader, read, root, piece, numbers);
  for (StoredDataset& dataset : read.datasets) {
    dataset.tensor = numbers[to_size(dataset.tensor)];
    dataset.shard += static_cast<std::int64_t>(manifest.shards.size());
    manifest.datasets.push_back(std::move(dataset));
  }
  manifest.shards.insert(manifest.shards.end(), read.shards.begin(), read.shards.end());
}

}  // namespace forge

#include <algorithm>

#include "checkpoint/hdf5.hpp"
#include "checkpoint/manifest_pieces.hpp"
#include "checkpoint/shard_writer.hpp"
#include "checkpoint/table_file.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::int64_t chunk_bytes = 1 << 20;
constexpr std::int64_t most_chunks = 1024;  // HDF5 keeps the places of more in pages, which TableFile doesn't read

void write_attribute(hid_t owner, const char* key, hid_t stored, hid_t type, const void* value,
                     const std::string& name) {
  const Hid one(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate", name);
  Hid id(H5Acreate2(owner, key, stored, one, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "H5Acreate", name);
  check_hdf5(H5Awrite(id, type, value), "H5Awrite", name);
  id.close("H5Aclose", name);
}

void write_number(hid_t file, const std::string& name, const char* attribute, std::int64_t value) {
  write_attribute(file, attribute, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, name);
}

// A dataset of fixed type, chunked and checksummed, which TableFile reads: none where the table is empty. `path` begins
// with "/". `titles`: an attribute for people, what the columns are.
template <class T>
void write_table(hid_t file, const std::string& name, const char* path, const Table<T>& table, const char* titles) {
  if (table.values.empty()) return;
  const hsize_t dims[2] = {static_cast<hsize_t>(table.rows()), static_cast<hsize_t>(table.columns)};
  const std::int64_t rows =
      std::clamp<std::int64_t>(chunk_bytes / (table.columns * static_cast<std::int64_t>(sizeof(T))), 1, table.rows());
  require((table.rows() + rows - 1) / rows <= most_chunks, "a checkpoint's table is too large");
  const Hid list = checked_chunks({static_cast<hsize_t>(rows), dims[1]}, name);
  make_group_of(file, path, name);
  const Hid space(H5Screate_simple(2, dims, nullptr), H5Sclose, "H5Screate", name);
  Hid set(H5Dcreate2(file, path, file_type(dtype_of<T>), space, H5P_DEFAULT, list, H5P_DEFAULT), H5Dclose, "H5Dcreate",
          name);
  const hid_t type = sizeof(T) == 1 ? H5T_NATIVE_UINT8 : H5T_NATIVE_INT64;
  check_hdf5(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, table.values.data()), "H5Dwrite", name);
  const Hid text(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy", name);
  check_hdf5(H5Tset_size(text, std::char_traits<char>::length(titles) + 1), "H5Tset_size", name);
  write_attribute(set, "columns", text, text, titles, name);
  set.close("H5Dclose", name);
}

Table<std::uint8_t> text_table(const std::string& text) {
  return {1, {text.begin(), text.end()}};
}

// Extents of a fixed number of columns, filled up with zeros.
void append(std::vector<std::int64_t>& row, const Extents& extents) {
  for (std::size_t d = 0; d < most_dimensions; ++d) row.push_back(d < extents.size() ? extents[d] : 0);
}

// Writes tables one behind the other and beats behind each.
struct TableWriter {
  hid_t file;
  const std::string& name;
  Heartbeat* heartbeat;

  void beat() const {
    if (heartbeat) heartbeat->beat();
  }
  template <class T>
  void write(const char* path, const Table<T>& table, const char* columns) const {
    write_table(file, name, path, table, columns);
    beat();
  }
};

void write_tensors(const TableWriter& to, const std::vector<StoredTensor>& tensors) {
  Table<std::int64_t> table{2 + most_dimensions, {}};
  std::string names;
  for (const StoredTensor& tensor : tensors) {
    require(tensor.shape.size() <= most_dimensions && tensor.name.find('\n') == std::string::npos,
            "a checkpoint's tensor has too many dimensions, or a name of two lines");
    names += tensor.name + "\n";
    table.values.push_back(static_cast<std::int64_t>(tensor.type));
    table.values.push_back(static_cast<std::int64_t>(tensor.shape.size()));
    append(table.values, tensor.shape);
  }
  to.write("/placement/tensor_names", text_table(names), "one name per line");
  to.write("/placement/tensors", table, "type (0 fp64, 1 fp32, 2 bf16), dimensions, extents (4, the unused ones 0)");
}

struct DatasetTables {
  Table<std::int64_t> datasets{6, {}}, pieces{1 + 2 * most_dimensions, {}}, chunks{2, {}};
  Table<std::uint8_t> chunk_hashes{32, {}};
};

DatasetTables tables_of(const std::vector<StoredDataset>& datasets) {
  DatasetTables t;
  for (const StoredDataset& d : datasets) {
    t.datasets.values.insert(t.datasets.values.end(),
                             {d.tensor, d.shard, d.elements, d.chunk_elements,
                              static_cast<std::int64_t>(d.pieces.size()), static_cast<std::int64_t>(d.chunks.size())});
    for (const StoredPiece& piece : d.pieces) {
      t.pieces.values.push_back(piece.first);
      append(t.pieces.values, piece.box.offset);
      append(t.pieces.values, piece.box.extent);
    }
    for (const StoredChunk& chunk : d.chunks) {
      t.chunks.values.insert(t.chunks.values.end(),
                             {static_cast<std::int64_t>(chunk.offset), static_cast<std::int64_t>(chunk.bytes)});
      t.chunk_hashes.values.insert(t.chunk_hashes.values.end(), chunk.hash.begin(), chunk.hash.end());
    }
  }
  return t;
}

void write_shards(const TableWriter& to, const Manifest& manifest) {
  Table<std::int64_t> shards{2, {}};
  Table<std::uint8_t> hashes{32, {}};
  for (const StoredShard& shard : manifest.shards) {
    shards.values.insert(shards.values.end(), {shard.number, static_cast<std::int64_t>(shard.bytes)});
    hashes.values.insert(hashes.values.end(), shard.rest.begin(), shard.rest.end());
  }
  to.write("/placement/shards", shards, "number in the file's name, bytes");
  to.write("/placement/shard_hashes", hashes, "SHA-256 of the bytes outside of chunks");
  const DatasetTables t = tables_of(manifest.datasets);
  to.write("/placement/datasets", t.datasets,
           "row of tensors, row of shards, elements, elements of a chunk, number of pieces, number of chunks");
  to.write("/placement/pieces", t.pieces,
           "first element in the dataset, offset in the tensor (4), extent (4); in the order of datasets");
  to.write("/placement/chunks", t.chunks, "offset in the shard's file, bytes; in the order of datasets");
  to.write("/placement/chunk_hashes", t.chunk_hashes, "SHA-256 of the chunk's bytes");
}

void write_pieces(const TableWriter& to, const ManifestRoot& root) {
  Table<std::int64_t> files{5, {}}, reach{3 + 2 * most_dimensions, {}};
  Table<std::uint8_t> hashes{32, {}};
  for (const ManifestPiece& piece : root.pieces) {
    files.values.insert(files.values.end(), {piece.number, piece.shards.begin, piece.shards.end, piece.count,
                                             static_cast<std::int64_t>(piece.bytes)});
    hashes.values.insert(hashes.values.end(), piece.hash.begin(), piece.hash.end());
  }
  for (const PieceReach& row : root.reaches) {
    reach.values.insert(reach.values.end(), {row.piece, row.tensor, row.elements});
    append(reach.values, row.box.offset);
    append(reach.values, row.box.extent);
  }
  to.write("/placement/files", files,
           "number in the file's name, least number of a shard in it, one above the largest, shards, bytes");
  to.write("/placement/file_hashes", hashes, "SHA-256 of the file");
  to.write("/placement/reach", reach,
           "row of files, row of tensors, elements there, offset (4) and extent (4) of the box around them");
}

// A tensor as people see it: its pieces, where they stand in the shards.
void write_virtual(hid_t file, const std::string& name, const Manifest& manifest, std::int64_t number,
                   const std::vector<const StoredDataset*>& datasets) {
  const StoredTensor& tensor = manifest.tensors[to_size(number)];
  const std::vector<hsize_t> shape(tensor.shape.begin(), tensor.shape.end());
  const Hid space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "H5Screate", name);
  const Hid list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate", name);
  check_hdf5(H5Pset_obj_track_times(list, 0), "H5Pset_obj_track_times", name);
  for (const StoredDataset* dataset : datasets) {
    const auto elements = static_cast<hsize_t>(dataset->elements);
    const std::string shard = shard_name(manifest.shards[to_size(dataset->shard)].number);
    for (const StoredPiece& piece : dataset->pieces) {
      const std::vector<hsize_t> offset(piece.box.offset.begin(), piece.box.offset.end()),
          extent(piece.box.extent.begin(), piece.box.extent.end());
      const auto first = static_cast<hsize_t>(piece.first), count = static_cast<hsize_t>(piece.box.size());
      const Hid source(H5Screate_simple(1, &elements, nullptr), H5Sclose, "H5Screate", name);
      check_hdf5(H5Sselect_hyperslab(source, H5S_SELECT_SET, &first, nullptr, &count, nullptr), "H5Sselect_hyperslab",
                 name);
      check_hdf5(H5Sselect_hyperslab(space, H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr),
                 "H5Sselect_hyperslab", name);
      check_hdf5(H5Pset_virtual(list, space, shard.c_str(), tensor.name.c_str(), source), "H5Pset_virtual", name);
    }
  }
  check_hdf5(H5Sselect_all(space), "H5Sselect_all", name);
  make_group_of(file, tensor.name, name);
  Hid set(H5Dcreate2(file, tensor.name.c_str(), file_type(tensor.type), space, H5P_DEFAULT, list, H5P_DEFAULT),
          H5Dclose, "H5Dcreate", name);
  set.close("H5Dclose", name);
}

void write_facts(const TableWriter& to, const CheckpointFacts& facts) {
  const auto number = [&](const char* attribute, std::int64_t value) {
    write_number(to.file, to.name, attribute, value);
  };
  number("step", facts.step);
  number("tokens", facts.tokens);
  number("samples", facts.samples);
  number("updates", facts.updates);
  number("not_finite_in_a_row", facts.bad_in_a_row);
  number("seed", static_cast<std::int64_t>(facts.seed));
  number("ranks", facts.ranks);
  write_table(to.file, to.name, "/run/deck", text_table(facts.deck), "YAML");
  write_table(to.file, to.name, "/run/build", text_table(facts.build), "text");
  write_table(to.file, to.name, "/run/data", text_table(facts.data), "text");
  if (!facts.spikes.empty()) write_table(to.file, to.name, "/run/spikes", text_table(facts.spikes), "text");
  to.beat();
}

// A new file of this format, with the tables that write(to) puts there, on the disk.
template <class F>
void write_tables(const std::string& path, std::int64_t format, Heartbeat* heartbeat, F write) {
  {
    const Hdf5Lock lock;
    Hid file = create_file(path);
    const TableWriter to{file, path, heartbeat};
    write_number(file, path, "format", format);
    write(to);
    to.beat();
    check_hdf5(H5Fflush(file, H5F_SCOPE_GLOBAL), "H5Fflush", path);
    file.close("H5Fclose", path);
  }
  sync_file(path);
}

}  // namespace

void write_manifest(const std::string& path, const Manifest& manifest, Heartbeat* heartbeat) {
  write_tables(path, whole_format, heartbeat, [&](const TableWriter& to) {
    write_facts(to, manifest.facts);
    write_tensors(to, manifest.tensors);
    write_shards(to, manifest);
    std::vector<std::vector<const StoredDataset*>> datasets(manifest.tensors.size());
    for (const StoredDataset& d : manifest.datasets) datasets[to_size(d.tensor)].push_back(&d);
    for (std::size_t t = 0; t < datasets.size(); ++t) {
      to.beat();
      write_virtual(to.file, path, manifest, static_cast<std::int64_t>(t), datasets[t]);
    }
  });
}

void write_piece(const std::string& path, const Manifest& piece, Heartbeat* heartbeat) {
  write_tables(path, pieces_format, heartbeat, [&](const TableWriter& to) {
    write_tensors(to, piece.tensors);
    write_shards(to, piece);
  });
}

void write_root(const std::string& path, const ManifestRoot& root, Heartbeat* heartbeat) {
  write_tables(path, pieces_format, heartbeat, [&](const TableWriter& to) {
    write_facts(to, root.facts);
    write_tensors(to, root.tensors);
    write_pieces(to, root);
  });
}

}  // namespace forge

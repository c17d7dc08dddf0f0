#include "checkpoint/tables.hpp"

#include <algorithm>

#include "checkpoint/manifest.hpp"

namespace forge {

namespace {

constexpr std::int64_t chunk_bytes = 1 << 20;

template <class T>
hid_t memory_type() {
  return sizeof(T) == 1 ? H5T_NATIVE_UINT8 : H5T_NATIVE_INT64;
}

[[noreturn]] void reject(const std::string& name, const std::string& path, const std::string& what) {
  throw BadCheckpoint(name + ": " + path + " " + what);
}

template <class T>
void write_any(hid_t file, const std::string& name, const char* path, const Table<T>& table, const char* titles) {
  if (table.values.empty()) return;
  const hsize_t dims[2] = {static_cast<hsize_t>(table.rows()), static_cast<hsize_t>(table.columns)};
  const std::int64_t rows =
      std::clamp<std::int64_t>(chunk_bytes / (table.columns * static_cast<std::int64_t>(sizeof(T))), 1, table.rows());
  const Hid list = checked_chunks({static_cast<hsize_t>(rows), dims[1]}, name);
  make_group_of(file, path, name);
  const Hid space(H5Screate_simple(2, dims, nullptr), H5Sclose, "H5Screate", name);
  Hid set(H5Dcreate2(file, path, file_type(dtype_of<T>), space, H5P_DEFAULT, list, H5P_DEFAULT), H5Dclose, "H5Dcreate",
          name);
  check_hdf5(H5Dwrite(set, memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, table.values.data()), "H5Dwrite", name);
  const Hid text(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy", name);
  check_hdf5(H5Tset_size(text, std::char_traits<char>::length(titles) + 1), "H5Tset_size", name);
  const Hid one(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate", name);
  Hid attribute(H5Acreate2(set, "columns", text, one, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "H5Acreate", name);
  check_hdf5(H5Awrite(attribute, text, titles), "H5Awrite", name);
  attribute.close("H5Aclose", name);
  set.close("H5Dclose", name);
}

// "/placement/pieces": every step a hard link, so that nothing outside of the file is reached.
void check_links(hid_t file, const std::string& name, const std::string& path) {
  for (std::size_t at = 1; at != std::string::npos && at < path.size();) {
    at = path.find('/', at);
    H5L_info_t info;
    if (H5Lget_info(file, path.substr(0, at).c_str(), &info, H5P_DEFAULT) < 0) reject(name, path, "is missing");
    if (info.type != H5L_TYPE_HARD) reject(name, path, "is no hard link");
    if (at != std::string::npos) ++at;
  }
}

template <class T>
void read_any(hid_t file, const std::string& name, const char* path, Table<T>& table, std::uint64_t file_bytes) {
  check_links(file, name, path);
  const Hid set(H5Dopen2(file, path, H5P_DEFAULT), H5Dclose, "H5Dopen", name);
  const Hid type(H5Dget_type(set), H5Tclose, "H5Dget_type", name);
  if (H5Tequal(type, file_type(dtype_of<T>)) <= 0) reject(name, path, "has another type");
  const Hid list(H5Dget_create_plist(set), H5Pclose, "H5Dget_create_plist", name);
  if (H5Pget_layout(list) != H5D_CHUNKED || H5Pget_external_count(list) != 0 || H5Pget_nfilters(list) != 1)
    reject(name, path, "is not stored as forge does");
  unsigned flags = 0, config = 0;
  std::size_t values = 0;
  if (H5Pget_filter2(list, 0, &flags, &values, nullptr, 0, nullptr, &config) != H5Z_FILTER_FLETCHER32)
    reject(name, path, "has another filter than Fletcher's checksum");
  const Hid space(H5Dget_space(set), H5Sclose, "H5Dget_space", name);
  hsize_t dims[2] = {0, 0}, most[2] = {0, 0}, chunk[2] = {0, 0};
  if (H5Sget_simple_extent_type(space) != H5S_SIMPLE || H5Sget_simple_extent_ndims(space) != 2 ||
      H5Sget_simple_extent_dims(space, dims, most) != 2 || H5Pget_chunk(list, 2, chunk) != 2)
    reject(name, path, "has not two dimensions");
  const std::uint64_t row = static_cast<std::uint64_t>(table.columns) * sizeof(T);
  if (dims[1] != static_cast<hsize_t>(table.columns) || most[0] != dims[0] || most[1] != dims[1] ||
      chunk[1] != dims[1] || dims[0] == 0 || dims[0] > file_bytes / row || chunk[0] > dims[0])
    reject(name, path, "has other extents");
  table.values.resize(dims[0] * dims[1]);
  check_hdf5(H5Dread(set, memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, table.values.data()), "H5Dread", name);
}

}  // namespace

void write_table(hid_t file, const std::string& name, const char* path, const Table<std::int64_t>& table,
                 const char* titles) {
  write_any(file, name, path, table, titles);
}
void write_table(hid_t file, const std::string& name, const char* path, const Table<std::uint8_t>& table,
                 const char* titles) {
  write_any(file, name, path, table, titles);
}
void read_table(hid_t file, const std::string& name, const char* path, Table<std::int64_t>& table,
                std::uint64_t file_bytes) {
  read_any(file, name, path, table, file_bytes);
}
void read_table(hid_t file, const std::string& name, const char* path, Table<std::uint8_t>& table,
                std::uint64_t file_bytes) {
  read_any(file, name, path, table, file_bytes);
}

void write_number(hid_t file, const std::string& name, const char* attribute, std::int64_t value) {
  const Hid one(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate", name);
  Hid id(H5Acreate2(file, attribute, H5T_STD_I64LE, one, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "H5Acreate", name);
  check_hdf5(H5Awrite(id, H5T_NATIVE_INT64, &value), "H5Awrite", name);
  id.close("H5Aclose", name);
}

std::int64_t read_number(hid_t file, const std::string& name, const char* attribute) {
  if (H5Aexists(file, attribute) <= 0) reject(name, attribute, "is missing");
  const Hid id(H5Aopen(file, attribute, H5P_DEFAULT), H5Aclose, "H5Aopen", name);
  const Hid type(H5Aget_type(id), H5Tclose, "H5Aget_type", name);
  const Hid space(H5Aget_space(id), H5Sclose, "H5Aget_space", name);
  if (H5Tequal(type, H5T_STD_I64LE) <= 0 || H5Sget_simple_extent_type(space) != H5S_SCALAR)
    reject(name, attribute, "is no 64-bit integer");
  std::int64_t value = 0;
  check_hdf5(H5Aread(id, H5T_NATIVE_INT64, &value), "H5Aread", name);
  return value;
}

}  // namespace forge

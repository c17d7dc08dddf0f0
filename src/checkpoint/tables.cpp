#include "checkpoint/tables.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace forge {

namespace {

constexpr std::int64_t chunk_bytes = 1 << 20;
constexpr std::int64_t most_chunks = 1024;  // HDF5 keeps the places of more in pages, which TableFile doesn't read

template <class T>
hid_t memory_type() {
  return sizeof(T) == 1 ? H5T_NATIVE_UINT8 : H5T_NATIVE_INT64;
}

template <class T>
void write_any(hid_t file, const std::string& name, const char* path, const Table<T>& table, const char* titles) {
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
  check_hdf5(H5Dwrite(set, memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, table.values.data()), "H5Dwrite", name);
  const Hid text(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy", name);
  check_hdf5(H5Tset_size(text, std::char_traits<char>::length(titles) + 1), "H5Tset_size", name);
  const Hid one(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate", name);
  Hid attribute(H5Acreate2(set, "columns", text, one, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "H5Acreate", name);
  check_hdf5(H5Awrite(attribute, text, titles), "H5Awrite", name);
  attribute.close("H5Aclose", name);
  set.close("H5Dclose", name);
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

void write_number(hid_t file, const std::string& name, const char* attribute, std::int64_t value) {
  const Hid one(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate", name);
  Hid id(H5Acreate2(file, attribute, H5T_STD_I64LE, one, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "H5Acreate", name);
  check_hdf5(H5Awrite(id, H5T_NATIVE_INT64, &value), "H5Awrite", name);
  id.close("H5Aclose", name);
}

}  // namespace forge

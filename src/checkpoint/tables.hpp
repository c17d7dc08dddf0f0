#pragma once

#include <string>
#include <vector>

#include "checkpoint/hdf5.hpp"

namespace forge {

// Tables and texts of a manifest: datasets of fixed type, chunked and checksummed. `path` begins with "/"; callers hold
// the library's lock.

template <class T>
struct Table {
  std::int64_t columns = 1;
  std::vector<T> values;  // rows · columns
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  const T* row(std::int64_t r) const { return values.data() + r * columns; }
};

// int64 (rows, columns) and uint8 (rows, columns). `titles`: an attribute for people, what the columns are. An empty
// table isn't written.
void write_table(hid_t file, const std::string& name, const char* path, const Table<std::int64_t>& table,
                 const char* titles);
void write_table(hid_t file, const std::string& name, const char* path, const Table<std::uint8_t>& table,
                 const char* titles);
void write_number(hid_t file, const std::string& name, const char* attribute, std::int64_t value);

// The same from an untrusted file of `file_bytes` bytes. Throws BadCheckpoint unless each step of the path is a hard
// link, and type, rank, columns, chunking and filter are exactly what write_table makes; before anything larger than
// the file is allocated.
void read_table(hid_t file, const std::string& name, const char* path, Table<std::int64_t>& table,
                std::uint64_t file_bytes);
void read_table(hid_t file, const std::string& name, const char* path, Table<std::uint8_t>& table,
                std::uint64_t file_bytes);
std::int64_t read_number(hid_t file, const std::string& name, const char* attribute);

}  // namespace forge

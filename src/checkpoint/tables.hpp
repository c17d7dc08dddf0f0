#pragma once

#include <string>

#include "checkpoint/hdf5.hpp"
#include "checkpoint/table.hpp"

namespace forge {

// Writes tables and texts of a manifest: datasets of fixed type, chunked and checksummed; TableFile reads them. `path`
// begins with "/"; callers hold the library's lock.

// int64 (rows, columns) and uint8 (rows, columns). `titles`: an attribute for people, what the columns are. An empty
// table isn't written.
void write_table(hid_t file, const std::string& name, const char* path, const Table<std::int64_t>& table,
                 const char* titles);
void write_table(hid_t file, const std::string& name, const char* path, const Table<std::uint8_t>& table,
                 const char* titles);
void write_number(hid_t file, const std::string& name, const char* attribute, std::int64_t value);

}  // namespace forge

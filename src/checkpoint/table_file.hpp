#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/file_handle.hpp"

namespace forge {

// A table of a manifest: a dataset of two dimensions, int64 or uint8.
template <class T>
struct Table {
  std::int64_t columns = 1;
  std::vector<T> values;  // rows · columns
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  const T* row(std::int64_t r) const { return values.data() + r * columns; }
};

// The tables and numbers of an HDF5 file, read without libhdf5, which doesn't survive malformed files. It knows the
// part of the format (HDF5 File Format Specification 3.0) that forge's manifests use and refuses anything else:
// superblock 3, version-2 object headers, links and attributes that stand in these, hard links, datasets in chunks with
// Fletcher's checksum as the only filter, as one chunk or in a fixed array. The file's SHA-256 has been verified, so
// that HDF5's own checksums are not looked at. All of it throws BadCheckpoint, before anything larger than the file is
// allocated.
class TableFile {
 public:
  explicit TableFile(const std::string& path);
  // The bytes of the file of this path, which somebody else has read.
  TableFile(const std::string& path, std::string bytes);
  const std::string& path() const { return path_; }

  // A 64-bit attribute of the root group.
  std::int64_t number(const std::string& attribute) const;

  // Whether there is an object of this path, whose groups all are.
  bool has(const std::string& path) const;

  // Where a table's chunks stand: each holds chunk_rows rows, the last one the rest of them.
  struct ChunkIndex {
    std::int64_t rows = 0, chunk_rows = 0;
    std::vector<std::uint64_t> chunks;
  };
  // Finds "/placement/pieces": a dataset of so many columns, elements of `size` bytes: 8 or 1. Every step of the path
  // is a hard link.
  ChunkIndex find(const std::string& path, std::int64_t columns, std::size_t size) const;
  void read_chunk(const std::string& path, std::uint64_t chunk, void* to, std::uint64_t bytes) const;

 private:
  struct Message {
    unsigned type = 0, flags = 0;
    std::vector<std::byte> bytes;
  };
  using Messages = std::vector<Message>;
  class Bytes;

  void read_root();
  void read_at(std::uint64_t offset, void* to, std::uint64_t bytes) const;
  [[noreturn]] void reject(const std::string& object, const std::string& what) const;
  std::vector<std::byte> bytes_at(std::uint64_t offset, std::uint64_t size, const std::string& object) const;
  Messages messages_at(std::uint64_t address, const std::string& object) const;
  void add_messages(Bytes bytes, bool tracked, Messages& messages, std::vector<std::byte>& continuations) const;
  // The only message of a type, nullptr: there is none.
  const Message* only(const Messages& messages, unsigned type, const std::string& object) const;
  const Message& needed(const Messages& messages, unsigned type, const std::string& object) const;
  // Where the object of this name in a group stands; `undefined`: there is none, which linked() rejects.
  std::uint64_t find_link(const Messages& group, const std::string& name, const std::string& object) const;
  std::uint64_t linked(const Messages& group, const std::string& name, const std::string& object) const;
  void check_type(Bytes bytes, std::size_t size, const std::string& object) const;
  void find_chunks(const Messages& set, std::uint64_t row_bytes, std::size_t size, ChunkIndex& place,
                   const std::string& object) const;
  std::vector<std::uint64_t> fixed_array(std::uint64_t address, std::uint64_t count, std::uint64_t stored,
                                         const std::string& object) const;

  std::string path_;
  std::optional<FileHandle> file_;
  std::string memory_;  // where there is no file
  std::uint64_t size_ = 0;
  Messages root_;
};

// A table's rows one after the other: one chunk of the file is held. T: std::int64_t or std::uint8_t.
template <class T>
class RowReader {
 public:
  RowReader(const TableFile& file, const std::string& path, std::int64_t columns);
  std::int64_t rows() const { return place_.rows; }
  std::int64_t left() const { return place_.rows - next_; }
  // Valid until the next call; left() > 0.
  const T* next();

 private:
  const TableFile& file_;
  std::string path_;
  TableFile::ChunkIndex place_;
  std::int64_t columns_, next_ = 0;
  std::vector<T> values_;
};

}  // namespace forge

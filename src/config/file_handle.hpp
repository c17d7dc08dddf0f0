#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "core/heartbeat.hpp"

namespace forge {

// A file descriptor with its path, closed at the end of its life.
class FileHandle {
 public:
  // An existing regular file. Throws BadInput naming `what` and the path where there is none, NotPermitted where it may
  // not be read, IoFailed where the system fails, more than once where that may pass (core/file_errors.hpp).
  static FileHandle open_to_read(const std::string& path, const std::string& what);
  // A new file. Throws IoFailed, also where something has its name, a link included.
  static FileHandle open_to_write(const std::string& path);
  // A regular file, made where there is none; its contents stay. Throws IoFailed, and BadInput where the name is a
  // link, a device or a pipe.
  static FileHandle open_to_append(const std::string& path);

  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) = delete;
  ~FileHandle();

  std::uint64_t size() const;
  // Exactly `bytes` bytes from `offset`: BadInput when the file ends before, IoFailed when reading fails.
  void read_at(std::uint64_t offset, void* to, std::size_t bytes) const;
  void write_at(std::uint64_t offset, const void* from, std::size_t bytes) const;
  void resize(std::uint64_t bytes) const;
  // Brings the contents to the disk part by part and beats behind each, since a long fsync shows no progress. It
  // replaces no fsync; where the system can't do it, nothing happens.
  void write_back(Heartbeat& heartbeat) const;
  // Ends writing: forces the contents to the disk, closes, gives the file its final name and makes that durable.
  void commit_as(const std::string& name);

 private:
  FileHandle(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

}  // namespace forge

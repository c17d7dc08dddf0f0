#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace forge {

// An open file, closed with the object. Messages name the path.
class PosixFile {
 public:
  // Opens a regular file for reading; BadInput when there is none, or it may not be read.
  static PosixFile open(const std::string& path);
  // Makes or empties a file for writing; IoFailed.
  static PosixFile create(const std::string& path);
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  ~PosixFile();

  const std::string& path() const { return path_; }
  // Bytes when it was opened.
  std::int64_t size() const { return size_; }
  // Reads up to out.size() bytes from `offset`, fewer only at the end of the file. May be called by several threads.
  std::size_t read(std::int64_t offset, std::span<std::byte> out) const;
  // Appends all bytes.
  void write(std::span<const std::byte> bytes);
  // Forces the contents to the disk and closes the file.
  void sync_and_close();

 private:
  PosixFile(int fd, std::string path, std::int64_t size) : fd_(fd), path_(std::move(path)), size_(size) {}
  void close();

  int fd_ = -1;
  std::string path_;
  std::int64_t size_ = 0;
};

// Renames a finished file into place and forces the directory to the disk; IoFailed.
void rename_durably(const std::string& from, const std::string& to);

}  // namespace forge

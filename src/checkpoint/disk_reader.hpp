#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/hash.hpp"

namespace forge {

// Reads a file from its beginning to its end, past this node's memory: the bytes on the disk or the file server. With
// O_DIRECT where the file system has that; else the kernel is asked to forget its copy first, which it may not do
// (tmpfs has none other). The memory of disks and servers isn't passed.
class DiskReader {
 public:
  // Throws BadInput naming `what` and the path where there is no such file.
  DiskReader(const std::string& path, const std::string& what);
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  std::uint64_t size() const { return size_; }
  // The next bytes, at most a mebibyte; none at the end. Valid until the next call. Throws IoFailed.
  std::span<const std::byte> next();

 private:
  std::string path_;
  int descriptor_ = -1;
  bool direct_ = true;
  std::uint64_t size_ = 0, at_ = 0;
  std::unique_ptr<std::byte[], void (*)(void*)> block_;
};

// SHA-256 of a whole file, as the disk has it.
Hash hash_on_disk(const std::string& path);

}  // namespace forge

#include "checkpoint/disk_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/error.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::size_t alignment = 4096;  // of memory, offsets and lengths: what O_DIRECT asks for at most
constexpr std::size_t block_bytes = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& call, const std::string& path) {
  throw IoFailed(call + " " + path + ": " + std::strerror(errno));
}

}  // namespace

DiskReader::DiskReader(const std::string& path, const std::string& what)
    : path_(path), block_(static_cast<std::byte*>(std::aligned_alloc(alignment, block_bytes)), std::free) {
  if (!block_) throw std::bad_alloc();
  io_call("open", path);
  const auto open = [&](int flags) {
    return tried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags); });
  };
  descriptor_ = open(O_DIRECT);
  direct_ = descriptor_ >= 0;
  if (!direct_ && errno == EINVAL) descriptor_ = open(0);
  if (descriptor_ < 0) throw_input_error(what + " " + path, errno);
  struct stat status;
  const bool known = tried([&] { return ::fstat(descriptor_, &status); }) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const int error = errno;
    ::close(descriptor_);
    if (!known) throw_io_error("stat", path, error);
    throw BadInput(what + " " + path + " is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);  // a wish
}

DiskReader::~DiskReader() {
  ::close(descriptor_);
}

std::span<const std::byte> DiskReader::next() {
  if (at_ >= size_) return {};
  io_call("read", path_);
  std::size_t filled = 0;
  const auto wanted = to_size(std::min<std::uint64_t>(block_bytes, size_ - at_));
  while (filled < wanted) {
    const ssize_t n = tried([&] {
      return ::pread(descriptor_, block_.get() + filled, block_bytes - filled, static_cast<off_t>(at_ + filled));
    });
    if (n < 0 && errno == EINVAL && direct_) {  // it takes O_DIRECT, and then doesn't read so
      direct_ = false;
      if (::fcntl(descriptor_, F_SETFL, O_NONBLOCK) != 0) fail("fcntl", path_);
      continue;
    }
    if (n < 0) fail("read", path_);
    if (n == 0)
      throw BadInput(path_ + " ends at byte " + std::to_string(at_ + filled) + " of " + std::to_string(size_));
    filled += to_size(n);
  }
  at_ += wanted;
  return {block_.get(), wanted};
}

Hash hash_on_disk(const std::string& path) {
  DiskReader file(path, "file");
  Sha256 hash;
  for (auto bytes = file.next(); !bytes.empty(); bytes = file.next()) hash.add(bytes);
  return hash.finish();
}

}  // namespace forge

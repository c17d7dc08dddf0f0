#include "config/file_handle.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "config/path_hint.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Linux moves at most 2 GiB at a time.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

[[noreturn]] void fail(const std::string& call, const std::string& path, int error) {
  throw_io_error(call, path, error);
}

void sync_directory(const std::string& directory) {
  io_call("fsync", directory);
  const int descriptor = tried([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) fail("open", directory, errno);
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some network file systems have no fsync of directories and say EINVAL.
  if (status != 0 && error != EINVAL) fail("fsync", directory, error);
}

// A disk that is full: what the file needs at least, and what there is.
[[noreturn]] void fail_to_write(const std::string& path, int error, std::uint64_t needed) {
  const std::int64_t free = free_bytes_at(path);
  if ((error != ENOSPC && error != EDQUOT) || free < 0) fail("write", path, error);
  throw NoSpace("write " + path + ": " + std::strerror(error) + ": the file needs " + format_bytes(needed) +
                ", and its file system has " + format_bytes(static_cast<std::uint64_t>(free)) + " free");
}

}  // namespace

FileHandle FileHandle::open_to_read(const std::string& path, const std::string& what) {
  io_call("open", path);
  // Without O_NONBLOCK a named pipe would wait for a writer for ever.
  const int descriptor = tried([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (const int error = errno; descriptor < 0)
    throw_input_error(what + " " + path, error, error == ENOENT ? path_hint(path, PathUse::file) : "");
  FileHandle file(descriptor, path);
  struct stat status;
  if (tried([&] { return ::fstat(descriptor, &status); }) != 0) fail("stat", path, errno);
  if (!S_ISREG(status.st_mode)) throw BadInput(what + " " + path + " is not a regular file");
  return file;
}

FileHandle FileHandle::open_to_write(const std::string& path) {
  io_call("open", path);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) fail("open", path, errno);
  return {descriptor, path};
}

FileHandle FileHandle::open_to_append(const std::string& path) {
  io_call("open", path);
  // A named pipe without a reader is ENXIO, with O_NONBLOCK.
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  const bool other = descriptor < 0 && (errno == ELOOP || errno == ENXIO);
  if (descriptor < 0 && !other) fail("open", path, errno);
  FileHandle file(descriptor, path);
  struct stat status {};
  if (!other && ::fstat(descriptor, &status) != 0) fail("stat", path, errno);
  if (other || !S_ISREG(status.st_mode))
    throw BadInput(path +
                   " is a link, a device or a pipe, which forge doesn't write to; legal: a regular file, or none");
  return file;
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t FileHandle::size() const {
  struct stat status;
  if (tried([&] { return ::fstat(descriptor_, &status); }) != 0) fail("stat", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void FileHandle::read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
  io_call("read", path_);
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n =
        tried([&] { return ::pread(descriptor_, at, std::min(bytes, most_at_once), static_cast<off_t>(offset)); });
    if (n < 0) fail("read", path_, errno);
    if (n == 0)
      throw BadInput(path_ + " ends at byte " + std::to_string(offset) + ", " + std::to_string(bytes) +
                     " bytes before its expected end");
    at += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= to_size(n);
  }
}

void FileHandle::write_at(std::uint64_t offset, const void* from, std::size_t bytes) const {
  io_call("write", path_);
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(descriptor_, at, std::min(bytes, most_at_once), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_to_write(path_, n < 0 ? errno : ENOSPC, std::max<std::uint64_t>(offset + bytes, size()));
    at += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= to_size(n);
  }
}

void FileHandle::resize(std::uint64_t bytes) const {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail("truncate", path_, errno);
}

void FileHandle::write_back([[maybe_unused]] Heartbeat& heartbeat) const {
#ifdef SYNC_FILE_RANGE_WRITE
  constexpr std::uint64_t part = std::uint64_t{64} << 20;
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (std::uint64_t at = 0, end = size(); at < end; at += part) {
    if (::sync_file_range(descriptor_, static_cast<off_t>(at), static_cast<off_t>(part), all) != 0) {
      // What the disk refused is told once, and fsync would find nothing.
      if (errno == EIO || errno == ENOSPC || errno == EDQUOT) fail("sync_file_range", path_, errno);
      return;
    }
    heartbeat.beat();
  }
#endif
}

void FileHandle::commit_as(const std::string& name) {
  io_call("fsync", path_);
  if (::fsync(descriptor_) != 0) fail("fsync", path_, errno);
  io_call("close", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close", path_, errno);
  io_call("rename", name);
  if (std::rename(path_.c_str(), name.c_str()) != 0) fail("rename " + path_ + " to", name, errno);
  const auto slash = name.rfind('/');
  sync_directory(slash == std::string::npos ? "." : slash == 0 ? "/" : name.substr(0, slash));
}

}  // namespace forge

#include "data/posix_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.hpp"

namespace forge {

namespace {

std::string reason() {
  return std::strerror(errno);
}

}  // namespace

PosixFile PosixFile::open(const std::string& path) {
  // O_NONBLOCK: a pipe must not hold the start up before it is refused.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    const std::string text = path + ": cannot be opened: " + std::strerror(error);
    if (error == EMFILE || error == ENFILE || error == EIO) throw IoFailed(text);
    throw BadInput(text);
  }
  PosixFile file(fd, path, 0);
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw IoFailed(path + ": its size cannot be read: " + reason());
  if (!S_ISREG(status.st_mode)) throw BadInput(path + ": is no regular file");
  file.size_ = status.st_size;
  return file;
}

PosixFile PosixFile::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw IoFailed(path + ": cannot be written: " + reason());
  return PosixFile(fd, path, 0);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    size_ = other.size_;
  }
  return *this;
}

PosixFile::~PosixFile() {
  close();
}

void PosixFile::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::size_t PosixFile::read(std::int64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done,
                              static_cast<off_t>(offset + static_cast<std::int64_t>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw IoFailed(path_ + ": reading at byte offset " + std::to_string(offset + static_cast<std::int64_t>(done)) +
                     " failed: " + reason());
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void PosixFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoFailed(path_ + ": writing failed: " + reason());
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    size_ += n;
  }
}

void PosixFile::sync_and_close() {
  if (::fsync(fd_) != 0) throw IoFailed(path_ + ": writing to the disk failed: " + reason());
  if (::close(std::exchange(fd_, -1)) != 0) throw IoFailed(path_ + ": closing failed: " + reason());
}

void rename_durably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw IoFailed(to + ": renaming " + from + " to it failed: " + reason());
  const std::string parent = std::filesystem::path(to).parent_path().string();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const std::string text = synced ? "" : reason();
  if (fd >= 0) ::close(fd);
  if (!synced) throw IoFailed(to + ": writing its directory to the disk failed: " + text);
}

}  // namespace forge

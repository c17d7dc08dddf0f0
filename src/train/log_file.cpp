#include "train/log_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/bytes.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr std::size_t most_waiting = std::size_t{64} << 20;

[[noreturn]] void fail(const std::string& what, const std::string& file, int error) {
  throw IoFailed(what + " " + file + " failed: " + std::strerror(error));
}

// Bytes written, and the error that ended it, or 0.
std::pair<std::size_t, int> write_some(int descriptor, const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {at, errno};
    at += to_size(n);
  }
  return {at, 0};
}

}  // namespace

void write_all(int descriptor, const std::string& text, const std::string& file) {
  if (const auto [bytes, error] = write_some(descriptor, text); error != 0) fail("writing", file, error);
}

LogFile::~LogFile() {
  if (descriptor_ < 0) return;
  try_to_write();
  ::close(descriptor_);
}

void LogFile::open(const std::string& path) {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  path_ = path;
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  const bool other = descriptor_ < 0 && (errno == ELOOP || errno == ENXIO);
  if (descriptor_ < 0 && !other) fail("opening", path, errno);
  struct stat status {};
  if (other || ::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
    throw BadInput(path +
                   " is a link, a device or a pipe, which forge doesn't write to; legal: a regular file, or none");
}

void LogFile::sync() const {
  if (descriptor_ >= 0 && ::fdatasync(descriptor_) != 0 && !keeps_) fail("fdatasync of", path_, errno);
}

bool LogFile::has_name() const {
  return descriptor_ < 0 || has_still_name(descriptor_, path_);
}

void LogFile::try_to_write() {
  const auto [bytes, error] = write_some(descriptor_, waiting_);
  waiting_.erase(0, bytes);
  failure_ = error == 0 ? "" : std::strerror(error);
}

void LogFile::write(const std::string& text) {
  if (!keeps_) return write_all(descriptor_, text, path_);
  const bool waited = !waiting_.empty();
  if (waiting_.size() + text.size() <= most_waiting)
    waiting_ += text;
  else
    lost_ += text.size();
  try_to_write();
  if (!waited && !waiting_.empty())
    news_ = "writing " + path_ + " failed, the job goes on and tries again: " + failure_;
  if (waited && waiting_.empty())
    news_ = path_ + " is written again" + (lost_ > 0 ? ", without " + format_bytes(lost_) + " that are lost" : "");
}

void LogFile::finish() {
  try_to_write();
  if (!waiting_.empty())
    throw IoFailed("writing " + path_ + " failed to the end: " + failure_ + "; its last " +
                   format_bytes(waiting_.size() + lost_) + " are lost");
  if (lost_ > 0) throw IoFailed(path_ + " lacks " + format_bytes(lost_) + " of a time when it could not be written");
}

std::string LogFile::take_news() {
  return std::exchange(news_, "");
}

}  // namespace forge

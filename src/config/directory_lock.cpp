#include "config/directory_lock.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "core/file_errors.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

double seconds_since(Clock::time_point start) {
  return Seconds(Clock::now() - start).count();
}

// A file system of this kernel alone: all that can write there see its locks.
bool is_of_this_kernel(int descriptor) {
  constexpr std::uint32_t xfs = 0x58465342, zfs = 0x2fc12fc1;  // without a name in older headers
  struct statfs status;
  if (::fstatfs(descriptor, &status) != 0) return false;
  constexpr std::uint32_t known[] = {
      EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC, xfs, zfs};
  return std::find(std::begin(known), std::end(known), static_cast<std::uint32_t>(status.f_type)) != std::end(known);
}

// A holder that ends removes its file: who had opened it before holds a lock that nobody else sees.
bool has_name(int descriptor, const std::string& file) {
  struct stat opened, named;
  return ::fstat(descriptor, &opened) == 0 && ::lstat(file.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// What stands there under the lock's name may be anybody's.
void refuse_what_is_no_lock(int descriptor, const std::string& file) {
  struct stat status {};
  const bool known = descriptor >= 0 && ::fstat(descriptor, &status) == 0;
  if (known && S_ISREG(status.st_mode) && status.st_nlink <= 1) return;
  throw BadInput(file + " is a link, a device or a pipe, and no lock of forge's; legal: a regular file, or none");
}

// Makes the directory and those above it that are missing; adds to `made` what it has made, the outermost first.
// Another start may end meanwhile, and take one away that it had made and this one had seen: then all is looked at
// anew.
std::error_code make_directories(const fs::path& path, std::vector<fs::path>& made) {
  constexpr int most_tries = 10;  // /proc, too, says of a new directory that it doesn't exist
  std::error_code failed;
  for (int tries = 0; tries < most_tries; ++tries) {
    std::vector<fs::path> missing;
    for (fs::path p = path; !p.empty() && !fs::exists(p, failed); p = p.parent_path()) missing.push_back(p);
    failed.clear();
    for (; !missing.empty() && !failed; missing.pop_back())
      if (fs::create_directory(missing.back(), failed)) made.push_back(missing.back());
    if (!failed && !fs::is_directory(path, failed) && !failed)
      failed = std::make_error_code(std::errc::not_a_directory);
    if (failed != std::errc::no_such_file_or_directory) break;
  }
  return failed;
}

// Seconds since 1970 of the last write, to a file, or to a directory and all that is in it; 0: it is gone.
double last_write(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) return 0;
  double last = static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  std::error_code gone;
  if (S_ISDIR(status.st_mode))
    for (const auto& entry : fs::directory_iterator(path, gone)) last = std::max(last, last_write(entry.path()));
  return last;
}

}  // namespace

DirectoryLock::DirectoryLock(LockedDirectory directory, LockTimes times)
    : directory_(std::move(directory)),
      times_(times),
      file_(directory_.path + "/" + directory_.file),
      who_(this_process()),
      nonce_(draw_nonce()) {
  try {
    wait_for_turn();
  } catch (...) {
    give_back();
    throw;
  }
  if (!certain()) renewal_ = std::jthread([this](const std::stop_token& stop) { renew_text(stop); });
}

DirectoryLock::~DirectoryLock() {
  if (renewal_.joinable()) {
    renewal_.request_stop();
    renewal_.join();
  }
  give_back();
}

// The file's name goes before the lock does: who has opened the file before, and locks it now, sees that it has no name
// (has_name). Then the lock: a server keeps a nameless file in the directory for as long as it is open.
void DirectoryLock::give_back() {
  const LockText text = read_lock_text(file_);
  const bool without_text =  // on a full disk
      text.text.empty() && lock_ && certain() && has_name(lock_->number, file_);
  if (text.nonce == nonce_ || without_text) ::unlink(file_.c_str());
  lock_.reset();
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) ::rmdir(made->c_str());
}

DirectoryLock::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

void DirectoryLock::wait_for_turn() {
  const auto start = Clock::now();
  auto changed = start;
  bool said = false, beats = false;
  for (std::string last;; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
    const bool locked = try_lock();
    const LockText holder = read_lock_text(file_);
    if (holder.text != last) changed = Clock::now();
    beats = beats || (!last.empty() && holder.text != last);
    last = holder.text;
    const double silent = seconds_since(changed);
    if (locked && is_free(holder, silent) && claim()) return;
    lock_.reset();
    const double waits = is_earlier_start(holder) ? times_.same_job : times_.wait;
    const std::string user =
        (directory_.output.empty() ? " is in use by another forge job" : " is being written by another process") +
        (holder.who.empty() ? "" : " (" + holder.who + ")");
    if (!said && waits > 0 && times_.say && seconds_since(start) > 0.2) {
      times_.say(directory_.key + " " + directory_.name() + user + "; this start waits for it, up to " +
                 std::to_string(std::lround(waits)) + " s");
      said = true;
    }
    if (seconds_since(start) < waits) continue;
    if (locked && silent > 2 * times_.beat) continue;  // it may have died a moment ago
    if (locked && waits < 1 && !beats) continue;       // the same: a living one is heard of in a beat
    throw BadInput(directory_.key + " " + directory_.name() + user + ", which holds " + file_ +
                   "; wait for it to end, or choose another " + (directory_.output.empty() ? "directory" : "name"));
  }
}

// Opens the file; false: another process has the lock, or is removing the file, or the directory that it made.
bool DirectoryLock::try_lock() {
  const std::error_code failed = make_directories(directory_.path, made_);
  if (failed == std::errc::not_a_directory || failed == std::errc::file_exists)
    throw BadInput(directory_.key + " " + directory_.path + ": a part of it is a file; legal: directories");
  if (failed) throw IoFailed(directory_.key + " " + directory_.path + ": " + failed.message());
  lock_ =
      std::make_unique<Descriptor>(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  const int descriptor = lock_->number;
  const int opening = errno;
  std::error_code ignored;
  if (descriptor < 0 && opening == ENOENT && !std::filesystem::is_directory(directory_.path, ignored)) return false;
  errno = opening;
  if (descriptor < 0 && errno != ELOOP && errno != ENXIO)
    throw IoFailed(directory_.key + " " + directory_.name() + ": open " + file_ + ": " + std::strerror(errno));
  refuse_what_is_no_lock(descriptor, file_);
  struct stat place {};
  if (::stat(directory_.path.c_str(), &place) == 0) place_ = {place.st_dev, place.st_ino};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    reach_ = is_of_this_kernel(descriptor) ? Reach::everywhere : Reach::this_node;
    return has_name(descriptor, file_);
  }
  const int error = errno;
  if (error == EWOULDBLOCK || error == EINTR) return false;
  reach_ = Reach::nowhere;
  if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP) return has_name(descriptor, file_);
  throw_io_error("flock", file_, error);
}

// With the lock, as far as that reaches.
bool DirectoryLock::is_free(const LockText& holder, double silent) const {
  return certain() || holder.text.empty() || silent > times_.silence ||
         (reach_ == Reach::this_node && is_of_this_node(holder));
}

// Writes the own text; false: another job has written its own at the same time.
bool DirectoryLock::claim() {
  write_text(lock_->number, 0);
  if (certain()) return true;
  std::this_thread::sleep_for(Seconds(times_.settle));
  return read_lock_text(file_).nonce == nonce_;
}

// `beats` 0: to take the directory, which fails where the text counts and can't be written.
void DirectoryLock::write_text(int descriptor, std::uint64_t beats) const {
  const std::string text = lock_text(who_, nonce_, beats);
  const ssize_t n = ::pwrite(descriptor, text.data(), text.size(), 0);
  const int error = n < 0 ? errno : ENOSPC;
  const bool whole = n == static_cast<ssize_t>(text.size());
  if (!whole && !certain() && beats == 0) throw_io_error("write", file_, error);
  // Of the holder before nothing stays, not even where the own text finds no room.
  if ((whole || certain()) && ::ftruncate(descriptor, whole ? n : 0) != 0 && beats == 0)
    throw_io_error("truncate", file_, errno);
  if (!certain()) ::fdatasync(descriptor);  // for the other nodes
}

void DirectoryLock::renew_text(const std::stop_token& stop) const {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  for (std::uint64_t beats = 1;; ++beats) {
    stopped.wait_for(lock, stop, Seconds(times_.beat), [] { return false; });
    if (stop.stop_requested()) return;
    if (read_lock_text(file_).nonce != nonce_) continue;
    // Opened anew: so that other nodes see the change.
    if (const Descriptor file(::open(file_.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)); file.number >= 0)
      write_text(file.number, beats);
  }
}

std::string DirectoryLock::warning() const {
  if (certain()) return "";
  return directory_.key + " " + directory_.path + ": " +
         (reach_ == Reach::nowhere ? "this file system has no locks"
                                   : "locks of this file system may hold for one node only") +
         "; only the text of " + file_ + " keeps other jobs from writing there";
}

bool DirectoryLock::is_left_over(const std::string& path) const {
  constexpr double hour = 3600;
  return certain() || last_write(path) < last_write(file_) - hour;
}

void DirectoryLock::check() const {
  const LockText holder = read_lock_text(file_);
  if (!holder.nonce.empty() && holder.nonce != nonce_)
    throw IoFailed(directory_.key + " " + directory_.path + " was taken by another forge job (" + holder.who +
                   "), which took this one for dead");
}

bool DirectoryLock::keep() {
  check();
  if (!lock_ || has_still_name(lock_->number, file_)) return false;
  const std::string text = directory_.key + " " + directory_.path + " was removed or replaced while the job ran";
  if (!certain()) throw IoFailed(text);  // a thread renews the text
  const auto place = place_;
  if (!try_lock()) throw IoFailed(text + ", and another forge job has it now");
  write_text(lock_->number, 0);
  return place != place_;
}

}  // namespace forge

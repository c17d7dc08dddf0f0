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
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <sstream>

#include "config/output_file.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr const char* none = "-";

// A word, or "-".
std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text && *text && !std::strpbrk(text, " \t\n") ? text : none;
}

std::int64_t restart_of_this_job() {
  const char* text = std::getenv("SLURM_RESTART_COUNT");
  return text ? std::atoll(text) : 0;
}

// Another one after each start of the node; nodes may share a name.
std::string this_boot() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  return in >> id ? id : none;
}

// "n1, process 1234, since …": since now.
std::string this_process() {
  char node[256] = "", since[64] = "";
  ::gethostname(node, sizeof node - 1);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", ::gmtime_r(&now, &utc));
  const std::string job = variable("SLURM_JOB_ID");
  return std::string(node) + ", process " + std::to_string(::getpid()) + ", since " + since +
         (job == none ? "" : ", Slurm job " + job);
}

// Whether the text is of an earlier start of this one's Slurm job.
bool is_earlier_start(const LockText& holder) {
  return holder.job != none && holder.job == variable("SLURM_JOB_ID") && holder.restart < restart_of_this_job();
}

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

LockText read_lock_text(const std::string& file) {
  LockText t;
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return t;
  char bytes[1024];
  const ssize_t n = ::pread(descriptor, bytes, sizeof bytes, 0);
  ::close(descriptor);
  if (n <= 0) return t;
  t.text.assign(bytes, to_size(n));
  std::istringstream in(t.text);
  std::getline(in, t.who);
  t.who = printable(t.who, 400);
  in >> t.nonce >> t.boot >> t.job >> t.restart;
  if (in.fail() || !is_nonce(t.nonce)) return {t.text, t.who};
  return t;
}

std::string lock_text(const std::string& who, const std::string& nonce, std::uint64_t beats) {
  // Of one width: a text takes the place of the one before without a moment between them.
  const std::string number = formatted("%020llu", static_cast<unsigned long long>(beats));
  return who + "\n" + nonce + " " + this_boot() + " " + variable("SLURM_JOB_ID") + " " +
         std::to_string(restart_of_this_job()) + " " + number + "\n";
}

std::string holder_of_lock(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return "";
  const bool held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  if (!held) return "";
  const std::string who = read_lock_text(file).who;
  return who.empty() ? "another process" : who;
}

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
  renewal_ = {};  // stops it and waits for it
  give_back();
}

// The file's name goes before the lock does: who has opened the file before, and locks it now, sees that it has no name
// (has_still_name). Then the lock: a server keeps a nameless file in the directory for as long as it is open.
void DirectoryLock::give_back() {
  const LockText text = read_lock_text(file_);
  const bool without_text =  // on a full disk
      text.text.empty() && certain() && has_still_name(lock_, file_, false);
  if (text.nonce == nonce_ || without_text) ::unlink(file_.c_str());
  unlock();
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) ::rmdir(made->c_str());
}

void DirectoryLock::unlock() {
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
}

void DirectoryLock::wait_for_turn() {
  const auto start = Clock::now();
  auto changed = start;
  bool said = false, beats = false;
  for (std::string last;; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
    const bool locked = try_lock();
    const LockText holder = read_lock_text(file_);
    if (holder.text != last) {
      changed = Clock::now();
      beats = beats || !last.empty();
      last = holder.text;
    }
    const double silent = seconds_since(changed);
    if (locked && is_free(holder, silent) && claim()) return;
    unlock();
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
  constexpr int most_tries = 10;  // the directory that was there may go before the file is opened, and come again
  int opening = ENOENT;
  for (int tries = 0; opening == ENOENT && tries < most_tries; ++tries) {
    const std::error_code failed = make_directories(directory_.path, made_);
    if (failed == std::errc::not_a_directory || failed == std::errc::file_exists)
      throw BadInput(directory_.key + " " + directory_.path +
                     ": a part of it is a file, or a link to nothing; legal: directories");
    if (failed)
      throw IoFailed(directory_.key + " " + directory_.path + ": " + failed.message() +
                     "; legal: a directory in which this user may write");
    unlock();
    lock_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    opening = lock_ < 0 ? errno : 0;
  }
  std::error_code ignored;
  if (opening == ENOENT && !fs::is_directory(directory_.path, ignored)) return false;
  if (opening != 0 && opening != ELOOP && opening != ENXIO)
    throw IoFailed(directory_.key + " " + directory_.name() + ": open " + file_ + ": " + std::strerror(opening));
  // What stands there under the lock's name may be anybody's.
  struct stat opened {};
  struct stat place {};
  if (opening != 0 || ::fstat(lock_, &opened) != 0 || !S_ISREG(opened.st_mode) || opened.st_nlink > 1)
    throw BadInput(file_ + " is a link, a device or a pipe, and no lock of forge's; legal: a regular file, or none");
  if (::stat(directory_.path.c_str(), &place) == 0) place_ = {place.st_dev, place.st_ino};
  const int error = ::flock(lock_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (error == EWOULDBLOCK || error == EINTR) return false;
  reach_ = error != 0 ? Reach::nowhere : is_of_this_kernel(lock_) ? Reach::everywhere : Reach::this_node;
  if (error != 0 && error != ENOLCK && error != ENOSYS && error != EOPNOTSUPP) throw_io_error("flock", file_, error);
  // A holder that ends removes its file: who had opened it before holds a lock that nobody else sees.
  return has_still_name(lock_, file_, false);
}

// With the lock, as far as that reaches.
bool DirectoryLock::is_free(const LockText& holder, double silent) const {
  return certain() || holder.text.empty() || silent > times_.silence ||
         (reach_ == Reach::this_node && holder.boot != none && holder.boot == this_boot());
}

// Writes the own text; false: another job has written its own at the same time.
bool DirectoryLock::claim() {
  write_text(lock_, 0);
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
    const int file = ::open(file_.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    write_text(file, beats);
    ::close(file);
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
  if (has_still_name(lock_, file_)) return false;
  const std::string text = directory_.key + " " + directory_.path + " was removed or replaced while the job ran";
  if (!certain()) throw IoFailed(text);  // a thread renews the text
  const auto place = place_;
  if (!try_lock()) throw IoFailed(text + ", and another forge job has it now");
  write_text(lock_, 0);
  return place != place_;
}

}  // namespace forge

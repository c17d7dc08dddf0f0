// Stands before libc, preloaded (LD_PRELOAD) or linked into a test: makes calls on files below a directory fail on
// purpose. FORGE_IO_DIRECTORY names it, FORGE_IO_FAULT=call:n:what[:more] says which call: the n-th of these in a
// process, from 1; with `more`, all later ones, too. `what` is an errno; `kill` or `stop`, a signal to the process
// instead of the call; or 0: half of a write, as a short write; a flock that is granted without being asked for, on
// what says it is NFS. Where the call came to pass, its path is appended to the file that FORGE_IO_REPORT names. Calls:
// open, read, write, stat (of links, and of open files), fsync, close, rename, unlink (of directories, too), mkdir,
// flock.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "io_faults.hpp"

namespace {

constexpr int nothing = 0, half = -1;  // of verdict(), else an errno

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

struct Fault {
  std::string call, directory, report, after;
  long at = 0;
  int error = 0, signal = 0;
  bool more = false;

  Fault() {
    const char* where = std::getenv("FORGE_IO_DIRECTORY");
    const char* file = std::getenv("FORGE_IO_REPORT");
    const char* begin = std::getenv("FORGE_IO_AFTER");
    if (file) report = file;
    if (begin) after = begin;
    set(std::getenv("FORGE_IO_FAULT"), where ? where : "");
  }
  void set(const char* text, const char* where) {
    call.clear();
    directory = where;
    if (!text || directory.empty()) return;
    char name[16] = "", what[16] = "", rest[16] = "";
    if (std::sscanf(text, "%15[a-z]:%ld:%15[a-z0-9]:%15s", name, &at, what, rest) < 3) std::abort();
    signal = std::strcmp(what, "kill") == 0 ? SIGKILL : std::strcmp(what, "stop") == 0 ? SIGSTOP : 0;
    error = std::atoi(what);
    more = std::strcmp(rest, "more") == 0;
    call = name;
  }
};

Fault& fault() {
  static Fault the_fault;
  return the_fault;
}
std::atomic<long> calls{0}, hits{0};
std::atomic<bool> counts{false};

void report(const char* call, const std::string& path) {
  ++hits;
  if (fault().report.empty()) return;
  const std::string line = std::string(call) + " " + path + "\n";
  const int file =
      next<int (*)(const char*, int, ...)>("open")(fault().report.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) std::abort();
  next<ssize_t (*)(int, const void*, size_t)>("write")(file, line.data(), line.size());
  next<int (*)(int)>("close")(file);
}

// Whether this call is the one, and what becomes of it.
int verdict(const char* call, const std::string& path) {
  const Fault& f = fault();
  if (!counts && path.find(f.after) != std::string::npos) counts = true;
  if (!counts || f.call != call || path.find(f.directory) == std::string::npos) return nothing;
  const long n = ++calls;
  if (n != f.at && !(f.more && n > f.at)) return nothing;
  report(call, path);
  if (f.signal != 0) raise(f.signal);
  if (f.signal != 0) return nothing;
  return f.error == 0 ? half : f.error;
}

std::string path_of(int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = readlink(link, path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

std::string path_at(int directory, const char* path) {
  return path[0] == '/' || directory == AT_FDCWD ? path : path_of(directory) + "/" + path;
}

// The error of a call that can only fail; false: it shall be made.
bool fails(const char* call, const std::string& path) {
  const int error = fault().call.empty() ? nothing : verdict(call, path);
  if (error == nothing) return false;
  errno = error > 0 ? error : EIO;
  return true;
}

// Bytes to write, or −1 with errno.
ssize_t granted(int descriptor, size_t bytes) {
  const int error = fault().call.empty() ? nothing : verdict("write", path_of(descriptor));
  if (error > 0) errno = error;
  return error > 0 ? -1 : static_cast<ssize_t>(error == half && bytes > 1 ? bytes / 2 : bytes);
}

ssize_t faulty_pwrite(const char* name, int descriptor, const void* data, size_t bytes, off_t offset) {
  const ssize_t n = granted(descriptor, bytes);
  return n < 0 ? n
               : next<ssize_t (*)(int, const void*, size_t, off_t)>(name)(descriptor, data, static_cast<size_t>(n),
                                                                          offset);
}

int faulty_open(const char* name, int directory, const char* path, int flags, mode_t mode) {
  if (fails("open", path_at(directory, path))) return -1;
  if (std::strstr(name, "openat")) return next<int (*)(int, const char*, int, ...)>(name)(directory, path, flags, mode);
  return next<int (*)(const char*, int, ...)>(name)(path, flags, mode);
}

int faulty_statfs(const char* name, int descriptor, struct statfs* status) {
  const int result = next<int (*)(int, struct statfs*)>(name)(descriptor, status);
  constexpr int nfs = 0x6969;
  if (fault().call == "flock" && fault().error == 0 && fault().signal == 0) status->f_type = nfs;
  return result;
}

}  // namespace

void set_io_fault(const char* text, const char* directory) {
  calls = hits = 0;
  fault().set(text, directory);
}
bool io_fault_came_to_pass() {
  return hits > 0;
}

extern "C" {

#define FORGE_OPEN(name)                                              \
  int name(const char* path, int flags, ...) {                        \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                     \
    return faulty_open(#name, AT_FDCWD, path, flags, mode);           \
  }
#define FORGE_OPENAT(name)                                            \
  int name(int directory, const char* path, int flags, ...) {         \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                     \
    return faulty_open(#name, directory, path, flags, mode);          \
  }
FORGE_OPEN(open)
FORGE_OPEN(open64)
FORGE_OPENAT(openat)
FORGE_OPENAT(openat64)
// The names under which _FORTIFY_SOURCE calls them.
#define FORGE_CHECKED_OPEN(name)                         \
  int name(const char* path, int flags) {                \
    return faulty_open(#name, AT_FDCWD, path, flags, 0); \
  }
#define FORGE_CHECKED_OPENAT(name)                        \
  int name(int directory, const char* path, int flags) {  \
    return faulty_open(#name, directory, path, flags, 0); \
  }
FORGE_CHECKED_OPEN(__open_2)
FORGE_CHECKED_OPEN(__open64_2)
FORGE_CHECKED_OPENAT(__openat_2)
FORGE_CHECKED_OPENAT(__openat64_2)

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return faulty_pwrite("pwrite", descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  return faulty_pwrite("pwrite64", descriptor, data, bytes, offset);
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  const ssize_t n = granted(descriptor, bytes);
  return n < 0 ? n : next<ssize_t (*)(int, const void*, size_t)>("write")(descriptor, data, static_cast<size_t>(n));
}

ssize_t read(int descriptor, void* data, size_t bytes) {
  if (fails("read", path_of(descriptor))) return -1;
  return next<ssize_t (*)(int, void*, size_t)>("read")(descriptor, data, bytes);
}

ssize_t pread(int descriptor, void* data, size_t bytes, off_t offset) {
  if (fails("read", path_of(descriptor))) return -1;
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(descriptor, data, bytes, offset);
}

ssize_t __read_chk(int descriptor, void* data, size_t bytes, size_t) {
  return read(descriptor, data, bytes);
}

ssize_t __pread_chk(int descriptor, void* data, size_t bytes, off_t offset, size_t) {
  return pread(descriptor, data, bytes, offset);
}

ssize_t __pread64_chk(int descriptor, void* data, size_t bytes, off64_t offset, size_t) {
  return pread64(descriptor, data, bytes, offset);
}

ssize_t pread64(int descriptor, void* data, size_t bytes, off64_t offset) {
  if (fails("read", path_of(descriptor))) return -1;
  return next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64")(descriptor, data, bytes, offset);
}

int lstat(const char* path, struct stat* status) noexcept {
  return fails("stat", path) ? -1 : next<int (*)(const char*, struct stat*)>("lstat")(path, status);
}

int fstat(int descriptor, struct stat* status) noexcept {
  if (fails("stat", path_of(descriptor))) return -1;
  return next<int (*)(int, struct stat*)>("fstat")(descriptor, status);
}

int fsync(int descriptor) {
  return fails("fsync", path_of(descriptor)) ? -1 : next<int (*)(int)>("fsync")(descriptor);
}

// The descriptor is gone in any case, as Linux has it.
int close(int descriptor) {
  const bool failed = !fault().call.empty() && fails("close", path_of(descriptor));
  const int error = errno, result = next<int (*)(int)>("close")(descriptor);
  if (failed) errno = error;
  return failed ? -1 : result;
}

int rename(const char* from, const char* to) noexcept {
  return fails("rename", to) ? -1 : next<int (*)(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  if (fails("rename", path_at(to_directory, to))) return -1;
  return next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(from_directory, from, to_directory,
                                                                                  to, flags);
}

int unlink(const char* path) noexcept {
  return fails("unlink", path) ? -1 : next<int (*)(const char*)>("unlink")(path);
}

int remove(const char* path) noexcept {
  return fails("unlink", path) ? -1 : next<int (*)(const char*)>("remove")(path);
}

int rmdir(const char* path) noexcept {
  return fails("unlink", path) ? -1 : next<int (*)(const char*)>("rmdir")(path);
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return fails("unlink", path_at(directory, path))
             ? -1
             : next<int (*)(int, const char*, int)>("unlinkat")(directory, path, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return fails("mkdir", path) ? -1 : next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int flock(int descriptor, int operation) noexcept {
  const int error = fault().call.empty() ? nothing : verdict("flock", path_of(descriptor));
  if (error == half) return 0;
  if (error != nothing) errno = error;
  return error != nothing ? -1 : next<int (*)(int, int)>("flock")(descriptor, operation);
}

int fstatfs(int descriptor, struct statfs* status) noexcept {
  return faulty_statfs("fstatfs", descriptor, status);
}
}

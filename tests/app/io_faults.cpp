// Preloaded before libc (LD_PRELOAD): makes calls on files below FORGE_IO_DIRECTORY fail on purpose.
// FORGE_IO_FAULT=call:n:errno[:more]: the n-th of these calls in a process returns the error; with `more`, all later
// ones, too. Calls: write (pwrite and write; errno 0: half of the bytes are written, as a short write), fsync, rename.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Fault {
  std::string call, directory;
  long at = 0;
  int error = 0;
  bool more = false;

  Fault() {
    const char* text = std::getenv("FORGE_IO_FAULT");
    const char* where = std::getenv("FORGE_IO_DIRECTORY");
    if (!text || !where) return;
    char name[16] = "", rest[16] = "";
    if (std::sscanf(text, "%15[a-z]:%ld:%d:%15s", name, &at, &error, rest) < 3) std::abort();
    call = name;
    directory = where;
    more = std::strcmp(rest, "more") == 0;
  }
};

// Whether this call is the one: 0 no, else the error to return, −1 for a short write.
int verdict(const char* call, const char* path) {
  static const Fault fault;
  static std::atomic<long> calls{0};
  if (fault.call != call || !path || !std::strstr(path, fault.directory.c_str())) return 0;
  const long n = ++calls;
  if (n != fault.at && !(fault.more && n > fault.at)) return 0;
  return fault.error == 0 ? -1 : fault.error;
}

int verdict(const char* call, int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return verdict(call, path);
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

ssize_t faulty_pwrite(const char* name, int descriptor, const void* data, size_t bytes, off_t offset) {
  const int error = verdict("write", descriptor);
  if (error > 0) {
    errno = error;
    return -1;
  }
  if (error < 0 && bytes > 1) bytes /= 2;
  return next<ssize_t (*)(int, const void*, size_t, off_t)>(name)(descriptor, data, bytes, offset);
}

}  // namespace

extern "C" {

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return faulty_pwrite("pwrite", descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  return faulty_pwrite("pwrite64", descriptor, data, bytes, offset);
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  const int error = verdict("write", descriptor);
  if (error > 0) {
    errno = error;
    return -1;
  }
  if (error < 0 && bytes > 1) bytes /= 2;
  return next<ssize_t (*)(int, const void*, size_t)>("write")(descriptor, data, bytes);
}

int fsync(int descriptor) {
  if (const int error = verdict("fsync", descriptor); error != 0) {
    errno = error > 0 ? error : EIO;
    return -1;
  }
  return next<int (*)(int)>("fsync")(descriptor);
}

int rename(const char* from, const char* to) noexcept {
  if (const int error = verdict("rename", to); error != 0) {
    errno = error > 0 ? error : EIO;
    return -1;
  }
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}
}

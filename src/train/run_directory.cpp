#include "train/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "core/error.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& file) {
  throw IoFailed(what + " " + file + " failed: " + std::strerror(errno));
}

void write_all(int fd, const std::string& text, const std::string& file) {
  const char* p = text.data();
  std::size_t left = text.size();
  while (left > 0) {
    const ssize_t n = write(fd, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("writing", file);
    p += n;
    left -= static_cast<std::size_t>(n);
  }
}

int open_append(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) fail("opening", file);
  return fd;
}

int lock_directory(const std::string& directory, double wait_seconds) {
  const std::string file = directory + "/.lock";
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) fail("opening", file);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_seconds);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      close(fd);
      fail("locking", file);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      close(fd);
      throw BadInput("output.directory " + directory + " is in use by another forge job (it holds " + file +
                     "); wait for it to end, or choose another directory");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return fd;
}

// metrics.jsonl → metrics.1.jsonl, or the next free number.
void move_aside(const fs::path& file) {
  if (!fs::exists(file)) return;
  for (int n = 1;; ++n) {
    const fs::path to =
        file.parent_path() / (file.stem().string() + "." + std::to_string(n) + file.extension().string());
    if (fs::exists(to)) continue;
    fs::rename(file, to);
    return;
  }
}

// The step of a line of metrics.jsonl, −1 where it has none.
std::int64_t step_of_line(const std::string& line) {
  const std::string key = "\"step\": ";
  const std::size_t at = line.find(key);
  std::int64_t step = -1;
  if (at != std::string::npos) std::from_chars(line.data() + at + key.size(), line.data() + line.size(), step);
  return step;
}

// Bytes of the whole lines up to the first that is torn or belongs to a later step.
std::uint64_t kept_bytes(const std::string& file, std::int64_t last_step) {
  std::ifstream in(file, std::ios::binary);
  std::uint64_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const std::int64_t step = step_of_line(line);
    if (step < 0 || step > last_step || line.back() != '}') break;
    kept += line.size() + 1;
  }
  return kept;
}

void remove_temporaries(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".tmp") fs::remove(entry.path());
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, double wait_seconds) : path_(path) {
  try {
    fs::create_directories(path_);
    lock_ = lock_directory(path_, wait_seconds);
    remove_temporaries(path_);
  } catch (const fs::filesystem_error& error) {
    throw IoFailed("output.directory " + path_ + ": " + error.code().message());
  }
}

void RunDirectory::begin() {
  try {
    move_aside(path_ + "/metrics.jsonl");
    move_aside(path_ + "/log.txt");
  } catch (const fs::filesystem_error& error) {
    throw IoFailed("output.directory " + path_ + ": " + error.code().message());
  }
  open_logs();
}

void RunDirectory::resume(std::int64_t step) {
  open_logs();
  const std::string file = path_ + "/metrics.jsonl";
  if (ftruncate(metrics_, static_cast<off_t>(kept_bytes(file, step))) != 0) fail("truncating", file);
}

void RunDirectory::open_logs() {
  log_ = open_append(path_ + "/log.txt");
  metrics_ = open_append(path_ + "/metrics.jsonl");
}

RunDirectory::~RunDirectory() {
  for (const int fd : {metrics_, log_, lock_})
    if (fd >= 0) close(fd);
}

void RunDirectory::write_file(const std::string& name, const std::string& text) const {
  const std::string file = path_ + "/" + name, temporary = file + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("opening", temporary);
  try {
    write_all(fd, text, temporary);
  } catch (...) {
    close(fd);
    unlink(temporary.c_str());
    throw;
  }
  if (close(fd) != 0) fail("closing", temporary);
  if (rename(temporary.c_str(), file.c_str()) != 0) fail("renaming", temporary);
}

void RunDirectory::log(const std::string& text) {
  write_all(log_, text, path_ + "/log.txt");
}

void RunDirectory::metrics(const std::string& line) {
  write_all(metrics_, line, path_ + "/metrics.jsonl");
}

}  // namespace forge

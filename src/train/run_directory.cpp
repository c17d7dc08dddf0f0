#include "train/run_directory.hpp"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "config/file_handle.hpp"
#include "core/error.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

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

// A file that is being written: ".<nonce>.tmp".
bool is_temporary(const std::string& name) {
  constexpr std::size_t digits = 16;
  return name.size() == digits + 5 && name.front() == '.' && is_nonce(name.substr(1, digits)) &&
         name.substr(1 + digits) == ".tmp";
}

void remove_temporaries(const fs::path& directory, const DirectoryLock& lock) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_temporary(entry.path().filename()) && lock.is_left_over(entry.path())) fs::remove(entry.path());
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, double wait_seconds)
    : path_(path), lock_({"output.directory", path, ".lock"}, LockTimes{wait_seconds}) {
  try {
    remove_temporaries(path_, lock_);
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
  metrics_.cut(kept_bytes(path_ + "/metrics.jsonl", step));
}

void RunDirectory::open_logs() {
  log_.open(path_ + "/log.txt");
  metrics_.open(path_ + "/metrics.jsonl");
}

void RunDirectory::keep_what_fails() {
  log_.keep_what_fails();
  metrics_.keep_what_fails();
}

void RunDirectory::write_file(const std::string& name, const std::string& text) const {
  const std::string temporary = path_ + "/." + lock_.nonce() + ".tmp";
  try {
    FileHandle file = FileHandle::open_to_write(temporary);
    file.write_at(0, text.data(), text.size());
    file.commit_as(path_ + "/" + name);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

void RunDirectory::finish() {
  metrics_.finish();
  log_.finish();
}

std::string RunDirectory::take_news() {
  std::string news;
  for (LogFile* file : {&metrics_, &log_})
    if (const std::string text = file->take_news(); !text.empty()) news += text + "\n";
  return news;
}

}  // namespace forge

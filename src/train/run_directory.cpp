#include "train/run_directory.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "checkpoint/shard_writer.hpp"
#include "config/output_file.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"
#include "core/file_errors.hpp"
#include "train/metrics_file.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

// metrics.jsonl → metrics.1.jsonl, or the next free number: its name now; "": there is no file.
std::string move_aside(const fs::path& file) {
  if (!fs::exists(fs::symlink_status(file))) return "";
  for (int n = 1;; ++n) {
    const fs::path to =
        file.parent_path() / (file.stem().string() + "." + std::to_string(n) + file.extension().string());
    if (fs::exists(fs::symlink_status(to))) continue;
    fs::rename(file, to);
    return to;
  }
}

// elapsed_seconds of the last line that has it.
double last_elapsed(const std::string& file) {
  const std::string key = "\"elapsed_seconds\": ";
  std::ifstream in(file, std::ios::binary);
  double elapsed = 0;
  for (std::string line; std::getline(in, line);)
    if (const std::size_t at = line.find(key); at != std::string::npos)
      std::from_chars(line.data() + at + key.size(), line.data() + line.size(), elapsed);
  return elapsed;
}

// A link isn't followed, and a pipe would be waited for.
void refuse_what_is_no_file(const std::string& path) {
  const fs::file_type type = reading([&] { return fs::symlink_status(path).type(); });
  if (type != fs::file_type::not_found && type != fs::file_type::regular)
    throw BadInput(path + " is no regular file; legal: a regular file, or none");
}

void remove_temporaries(const fs::path& directory, const DirectoryLock& lock) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (has_nonce(entry.path().filename(), ".", ".tmp") && lock.is_left_over(entry.path())) fs::remove(entry.path());
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, const LockTimes& times)
    : path_(path), lock_({"output.directory", path, ".lock"}, times) {
  for (const char* name : {"/metrics.jsonl", "/log.txt"}) refuse_what_is_no_file(path_ + name);
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

std::vector<std::string> RunDirectory::resume(std::int64_t step, bool own) {
  const std::vector<std::string> notes = repair_metrics(path_ + "/metrics.jsonl", temporary_name(), step, own);
  open_logs();
  elapsed_before_ = last_elapsed(path_ + "/metrics.jsonl");
  return notes;
}

void RunDirectory::open_logs() {
  log_.open(path_ + "/log.txt");
  metrics_.open(path_ + "/metrics.jsonl");
}

void RunDirectory::keep_what_fails() {
  keeps_ = true;
  log_.keep_what_fails();
  metrics_.keep_what_fails();
}

void RunDirectory::sync() {
  metrics_.sync();
  log_.sync();
  if (named_ || keeps_) return;
  sync_directory(path_);
  const fs::path parent = fs::absolute(path_ + "/.").lexically_normal().parent_path().parent_path();
  if (!parent.empty()) sync_directory(parent);
  named_ = true;
}

std::string RunDirectory::lost() {
  constexpr std::chrono::seconds between(5);
  const auto now = std::chrono::steady_clock::now();
  if (keeps_ || now - looked_ < between) return "";
  looked_ = now;
  return metrics_.has_name() ? "" : lost_text();
}

std::string RunDirectory::lost_text() const {
  return path_ +
         "/metrics.jsonl was removed or replaced while the job ran, or output.directory was: what it said since "
         "then is lost";
}

void RunDirectory::write_file(const std::string& name, const std::string& text) const {
  OutputFile file(path_ + "/" + name, temporary_name());
  file.file().write_at(0, text.data(), text.size());
  file.commit();
}

std::string RunDirectory::write_deck(const std::string& text, const std::string& input) const {
  const std::string name = path_ + "/deck.yaml";
  std::error_code none;
  std::string aside;
  if (fs::equivalent(name, input, none) && read_text_file(name, most_yaml_bytes, "the deck") != text)
    aside = move_aside(name);
  write_file("deck.yaml", text);
  return aside.empty() ? "" : name + " was the input deck, which is " + aside + " now";
}

void RunDirectory::finish() {
  metrics_.finish();
  log_.finish();
  if (!metrics_.has_name()) throw IoFailed(lost_text());
}

std::string RunDirectory::take_news() {
  std::string news;
  for (LogFile* file : {&metrics_, &log_})
    if (const std::string text = file->take_news(); !text.empty()) news += text + "\n";
  return news;
}

}  // namespace forge

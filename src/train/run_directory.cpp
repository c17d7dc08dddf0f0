#include "train/run_directory.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "checkpoint/shard_writer.hpp"
#include "config/file_lines.hpp"
#include "config/output_file.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"
#include "core/file_errors.hpp"
#include "core/to_size.hpp"
#include "hf/json_input.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 20;

bool is_json(const std::string& line) {
  try {
    parse_json(line, "metrics", {});
    return true;
  } catch (const BadInput&) {
    return false;
  }
}

// The step of a line of metrics.jsonl, −1 where it is no whole line.
std::int64_t step_of_line(const std::string& line) {
  const std::string key = "\"step\": ";
  const std::size_t at = line.find(key);
  std::int64_t step = -1;
  if (at != std::string::npos) std::from_chars(line.data() + at + key.size(), line.data() + line.size(), step);
  return step >= 0 && line.back() == '}' && is_json(line) ? step : -1;
}

struct KeptPart {
  std::uint64_t begin = 0, end = 0;
};

// What stays, and what is missing there.
struct KeptLines {
  std::vector<KeptPart> parts;
  std::int64_t bad = 0, last = 0;  // lines between the kept ones; the last kept step
  std::vector<std::string> holes;  // steps without a line: "3", "6 to 8"
};

void add_hole(KeptLines& kept, std::int64_t first, std::int64_t last) {
  constexpr std::size_t most = 6;
  if (first > last || kept.holes.size() > most) return;
  kept.holes.push_back(kept.holes.size() == most ? "…"
                       : first == last           ? std::to_string(first)
                                                 : std::to_string(first) + " to " + std::to_string(last));
}

KeptLines kept_of(const FileHandle& file, std::int64_t last_step) {
  KeptLines kept;
  std::int64_t bad = 0;
  for_each_line(file, [&](const std::string& line, std::uint64_t begin) {
    const std::int64_t step = step_of_line(line);
    if (step < 0) ++bad;
    if (step < 0 || step > last_step) return;
    kept.bad += bad;
    bad = 0;
    if (!kept.parts.empty()) add_hole(kept, kept.last + 1, step - 1);
    kept.last = step;
    const std::uint64_t end = begin + line.size() + 1;
    if (!kept.parts.empty() && kept.parts.back().end == begin)
      kept.parts.back().end = end;
    else
      kept.parts.push_back({begin, end});
  });
  return kept;
}

// Only the first part, of a file that begins with it.
bool is_a_beginning(const KeptLines& kept) {
  return kept.parts.empty() || (kept.parts.size() == 1 && kept.parts.front().begin == 0);
}

void copy_parts(const FileHandle& from, const KeptLines& kept, const std::string& path, const std::string& temporary) {
  OutputFile to(path, temporary);
  std::vector<char> block;
  std::uint64_t written = 0;
  for (const KeptPart& part : kept.parts)
    for (std::uint64_t at = part.begin; at < part.end; at += block.size()) {
      block.resize(to_size(std::min<std::uint64_t>(part.end - at, most_at_once)));
      from.read_at(at, block.data(), block.size());
      to.file().write_at(written, block.data(), block.size());
      written += block.size();
    }
  to.commit();
}

// Leaves in metrics.jsonl what a run that goes on behind `step` has said up to there: whole lines of steps up to that
// one. What is behind them goes, and so do lines between them that are torn or blank. Returns what a person should know
// of that: lines that were left out, steps that have none. `own`: whether the file should have lines of all steps.
// `temporary`: a name beside it, for the new file. Throws IoFailed.
std::vector<std::string> repair_metrics(const std::string& path, const std::string& temporary, std::int64_t step,
                                        bool own) {
  namespace fs = std::filesystem;
  KeptLines kept;
  if (reading([&] { return fs::exists(fs::symlink_status(path)); })) {
    const FileHandle file = FileHandle::open_to_read(path, "metrics");
    kept = kept_of(file, step);
    if (is_a_beginning(kept))
      FileHandle::open_to_append(path).resize(kept.parts.empty() ? 0 : kept.parts.front().end);
    else
      copy_parts(file, kept, path, temporary);
  }
  if (own || !kept.parts.empty()) add_hole(kept, kept.last + 1, step);
  std::vector<std::string> notes;
  if (kept.bad > 0)
    notes.push_back(path + ": lines that were torn or blank, and are left out: " + std::to_string(kept.bad));
  if (!kept.holes.empty())
    notes.push_back(path + " has no lines of these steps, which the checkpoint has done: " + joined(kept.holes));
  return notes;
}

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
    move_aside(path_ + "/tensorboard");
  } catch (const fs::filesystem_error& error) {
    throw IoFailed("output.directory " + path_ + ": " + error.code().message());
  }
  open_logs(0);
}

std::vector<std::string> RunDirectory::resume(std::int64_t step, bool own) {
  const std::vector<std::string> notes = repair_metrics(path_ + "/metrics.jsonl", temporary_name(), step, own);
  open_logs(step);
  elapsed_before_ = last_elapsed(path_ + "/metrics.jsonl");
  return notes;
}

void RunDirectory::go_back(std::int64_t step) {
  if (metrics_.waits()) return;
  repair_metrics(path_ + "/metrics.jsonl", temporary_name(), step, true);
  metrics_.open(path_ + "/metrics.jsonl");
  if (tensorboard_ && !tensorboard_->file().waits()) tensorboard_->open(path_ + "/tensorboard", step);
}

void RunDirectory::open_logs(std::int64_t step) {
  log_.open(path_ + "/log.txt");
  metrics_.open(path_ + "/metrics.jsonl");
  if (!tensorboard_) return;
  if (keeps_) tensorboard_->file().keep_what_fails();
  tensorboard_->open(path_ + "/tensorboard", step);
}

void RunDirectory::keep_what_fails() {
  keeps_ = true;
  log_.keep_what_fails();
  metrics_.keep_what_fails();
}

void RunDirectory::sync() {
  metrics_.sync();
  log_.sync();
  if (tensorboard_) tensorboard_->file().sync();
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
         "/metrics.jsonl was removed or replaced while the job ran, or output.directory was: its lines since "
         "then are lost";
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

void RunDirectory::finish(Heartbeat* heartbeat) {
  metrics_.finish();
  log_.finish();
  if (tensorboard_) tensorboard_->file().finish();
  if (!metrics_.has_name()) throw IoFailed(lost_text());
  constexpr double most_seconds = 60;
  if (tracker_) tracker_->finish(most_seconds, heartbeat);
}

std::string RunDirectory::take_news() {
  std::string news;
  if (const std::string text = tracker_ ? tracker_->take_news() : ""; !text.empty()) {
    log(text + "\n");
    news = text + "\n";
  }
  for (LogFile* file : {&metrics_, &log_, tensorboard_ ? &tensorboard_->file() : nullptr})
    if (const std::string text = file ? file->take_news() : ""; !text.empty()) news += text + "\n";
  return news;
}

}  // namespace forge

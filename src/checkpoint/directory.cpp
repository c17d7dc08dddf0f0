#include "checkpoint/directory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "checkpoint/io_errors.hpp"
#include "checkpoint/shard_writer.hpp"
#include "config/file_handle.hpp"
#include "config/output_file.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"
#include "core/parse.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr const char* prefix = "step_";
constexpr const char* partial = ".partial";    // being written
constexpr const char* replaced = ".replaced";  // on its way out, a newer one takes its name
constexpr const char* removed = ".removed";    // on its way out
constexpr const char* temporary = ".tmp";      // a file that is being written

std::string hidden(const std::string& directory, std::int64_t step, const std::string& nonce, const char* suffix) {
  return directory + "/." + step_name(step) + "." + nonce + suffix;
}

void rename_directory(const std::string& from, const std::string& to) {
  io_call("rename", to);
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_io_error("rename " + from + " to", to, errno);
}

void remove_directory(const std::string& path) {
  io_call("remove", path);
  fs::remove_all(path);
}

bool is_committed(const fs::path& path) {
  return fs::exists(path / manifest_name) && fs::exists(path / manifest_hash_name);
}

// Both names at once where the file system can do it.
bool exchange(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

// A directory, or a link to one; what leads nowhere is none.
bool leads_to_directory(const fs::path& path) {
  std::error_code error;
  const bool leads = fs::is_directory(path, error);
  if (error && !is_wrong_name(error.value())) throw fs::filesystem_error("stat", path, error);
  return leads;
}

// f of the path and the step of each entry with a step's name.
template <class F>
void for_each_step_name(const std::string& directory, F f) {
  if (!fs::is_directory(directory)) return;
  for (const auto& entry : fs::directory_iterator(directory))
    if (const std::int64_t step = step_of_name(entry.path().filename()); step >= 0) f(entry.path(), step);
}

std::vector<fs::path> entries_of(const std::string& directory) {
  io_call("read", directory);
  return reading([&] {
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(directory)) entries.push_back(entry.path());
    return entries;
  });
}

// The step that a hidden name is about, "" where it isn't forge's: ".step_00001000.<nonce>.partial", and without a
// nonce, as earlier versions wrote it.
std::string step_of_hidden(const std::string& name) {
  const std::size_t end = name.find('.', 1), last = name.rfind('.');
  if (name[0] != '.' || end == std::string::npos) return "";
  const std::string step = name.substr(1, end - 1), suffix = name.substr(last);
  if (step_of_name(step) < 0 || (suffix != partial && suffix != replaced && suffix != removed)) return "";
  return end == last || is_nonce(name.substr(end + 1, last - end - 1)) ? step : "";
}

// What is no checkpoint keeps its contents under a name that is free; "" where there is none.
std::string make_way(const std::string& path) {
  if (!fs::exists(fs::symlink_status(path)) || leads_to_directory(path)) return "";
  std::string to;
  for (int n = 1; to.empty() || fs::exists(fs::symlink_status(to)); ++n) to = path + "." + std::to_string(n);
  rename_directory(path, to);
  return path + " was no directory, so no checkpoint; it is " + to + " now";
}

// Of `latest` and `run`, which are being written: ".latest.<nonce>.tmp".
bool is_hidden_file(const std::string& name) {
  const bool earlier = name == ".latest.tmp" || name == ".run.tmp";  // of earlier versions
  return earlier || has_nonce(name, ".latest.", temporary) || has_nonce(name, ".run.", temporary);
}

}  // namespace

std::string step_name(std::int64_t step) {
  return formatted("%s%08lld", prefix, static_cast<long long>(step));
}

std::int64_t step_of_name(const std::string& name) {
  const std::size_t digits = std::strlen(prefix);
  if (name.size() < digits + 8 || name.compare(0, digits, prefix) != 0) return -1;
  std::int64_t step = -1;
  return reads_as(std::string_view(name).substr(digits), step) && step >= 0 && step_name(step) == name ? step : -1;
}

std::vector<StepDirectory> committed_steps(const std::string& directory) {
  io_call("read", directory);
  return reading([&] {
    std::vector<StepDirectory> steps;
    for_each_step_name(directory, [&](const fs::path& path, std::int64_t step) {
      if (leads_to_directory(path)) steps.push_back({step, path});
    });
    std::sort(steps.begin(), steps.end(),
              [](const StepDirectory& a, const StepDirectory& b) { return a.step > b.step; });
    return steps;
  });
}

std::vector<std::string> notes_of_strange_steps(const std::string& directory) {
  return reading([&] {
    std::vector<std::string> notes;
    for_each_step_name(directory, [&](const fs::path& path, std::int64_t) {
      if (!leads_to_directory(path)) notes.push_back(path.string() + " is no directory, so no checkpoint; it stays");
    });
    return notes;
  });
}

bool same_place(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

std::string named_by_latest(const std::string& path) {
  return reading([&] {
    if (fs::path(path).filename() != "latest" || !fs::is_regular_file(path)) return path;
    const std::string text = as_damage([&] { return read_text_file(path, 64, "the file of the newest checkpoint"); }),
                      name = text.substr(0, text.find('\n'));
    if (step_of_name(name) < 0) throw BadCheckpoint(path + " names no checkpoint");
    return (fs::path(path).parent_path() / name).string();
  });
}

std::string start_step(const std::string& directory, std::int64_t step, const std::string& nonce) {
  return with_io_errors([&] {
    io_call("mkdir", directory);
    fs::create_directories(directory);
    for (const fs::path& path : entries_of(directory))
      if (!step_of_hidden(path.filename()).empty() && path.stem().string().ends_with("." + nonce) &&
          path.extension() != replaced)
        remove_directory(path);
    const std::string path = hidden(directory, step, nonce, partial);
    io_call("mkdir", path);
    fs::create_directory(path);
    return path;
  });
}

std::string commit_step(const std::string& directory, std::int64_t step, const std::string& nonce) {
  return with_io_errors([&] {
    const std::string from = hidden(directory, step, nonce, partial), to = directory + "/" + step_name(step),
                      old = hidden(directory, step, nonce, replaced);
    sync_directory(from);
    const std::string note = make_way(to);
    if (!fs::exists(to)) {
      rename_directory(from, to);
    } else if (exchange(from, to)) {
      rename_directory(from, old);
    } else {
      rename_directory(to, old);
      rename_directory(from, to);
    }
    sync_directory(directory);
    remove_directory(old);
    OutputFile latest(directory + "/latest", directory + "/.latest." + nonce + temporary);
    const std::string name = step_name(step) + "\n";
    latest.file().write_at(0, name.data(), name.size());
    latest.commit();
    return note;
  });
}

void abandon_step(const std::string& directory, std::int64_t step, const std::string& nonce) {
  std::error_code ignored;  // what failed before is what counts
  const std::string visible = directory + "/" + step_name(step), old = hidden(directory, step, nonce, replaced);
  if (!fs::exists(visible, ignored) && fs::exists(old, ignored)) fs::rename(old, visible, ignored);
  fs::remove_all(hidden(directory, step, nonce, partial), ignored);
  fs::remove(directory + "/.latest." + nonce + temporary, ignored);
}

void remove_step(const std::string& directory, const StepDirectory& step, const std::string& nonce) {
  with_io_errors([&] {
    const std::string gone = hidden(directory, step.step, nonce, removed);
    remove_directory(gone);
    rename_directory(step.path, gone);
    remove_directory(gone);
  });
}

std::vector<std::string> tidy_directory(const std::string& directory,
                                        const std::function<bool(const std::string& path)>& is_left_over) {
  return with_io_errors([&] {
    std::vector<std::string> kept;
    if (!fs::is_directory(directory)) return kept;
    for (const fs::path& path : entries_of(directory)) {
      const std::string name = path.filename(), step = step_of_hidden(name);
      if (step.empty() && !is_hidden_file(name)) continue;
      const std::string visible = directory + "/" + step;
      if (name.ends_with(replaced) && !leads_to_directory(visible) && is_committed(path)) {
        make_way(visible);
        rename_directory(path, visible);
      } else if (is_left_over(path))
        fs::remove_all(path);
      else
        kept.push_back(path);
    }
    return kept;
  });
}

std::string next_aside(const std::string& directory) {
  return with_io_errors([&] {
    std::string name;
    for (int n = 1; name.empty() || fs::exists(fs::symlink_status(directory + "/" + name)); ++n)
      name = "old." + std::to_string(n);
    return name;
  });
}

void move_steps_aside(const std::string& directory, std::int64_t after, const std::string& aside) {
  with_io_errors([&] {
    auto steps = committed_steps(directory);
    std::reverse(steps.begin(), steps.end());
    const std::string to = directory + "/" + aside;
    io_call("mkdir", to);
    fs::create_directories(to);
    for (const StepDirectory& step : steps)
      if (step.step > after) rename_directory(step.path, to + "/" + step_name(step.step));
    sync_directory(to);
    sync_directory(directory);
    fs::remove(directory + "/latest");
  });
}

}  // namespace forge

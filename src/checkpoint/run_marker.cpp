#include "checkpoint/run_marker.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "checkpoint/directory.hpp"
#include "config/output_file.hpp"
#include "config/text.hpp"
#include "core/faults.hpp"
#include "core/file_errors.hpp"
#include "core/parse.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr const char* marker_name = "run";

// What a start is moving: the steps behind `after`.
struct Move {
  std::string aside;  // "" nothing
  std::int64_t after = -1;
};

struct MarkerFile {
  RunMarker marker;
  Move move;
};

// "old.1": of next_aside.
bool is_aside(const std::string& name) {
  const std::string begin = "old.";
  return name.size() > begin.size() && name.size() < 24 && name.starts_with(begin) &&
         name.find_first_not_of("0123456789", begin.size()) == std::string::npos;
}

// A place in the directory where steps were moved, or one of them: "old.1", "old.1/step_00000008".
bool is_moved_place(const std::string& path) {
  const std::size_t slash = path.find('/');
  return is_aside(path.substr(0, slash)) && (slash == std::string::npos || step_of_name(path.substr(slash + 1)) >= 0);
}

// Of a text that may be anybody's: false where it is none of forge's lines.
bool read_line(const std::string& line, MarkerFile& file) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string::npos) return false;
  const std::string key = line.substr(0, blank), value = line.substr(blank + 1);
  if (key == "job") file.marker.jobs.push_back(value);
  if (key == "job") return !value.empty();
  if (key == "model") file.marker.model = value;
  if (key == "model") return is_moved_place(value);
  const std::size_t name = value.find(' ');
  if (key != "moving" || name == std::string::npos) return false;
  file.move.aside = value.substr(name + 1);
  return reads_as(value.substr(0, name), file.move.after) && file.move.after >= -1 && is_aside(file.move.aside);
}

// A line each: "job NAME", "model PATH", "moving AFTER NAME".
MarkerFile read_file(const std::string& directory) {
  constexpr std::size_t most_bytes = 1 << 20;
  const std::string path = directory + "/" + marker_name;
  MarkerFile file;
  if (!reading([&] { return fs::exists(fs::symlink_status(path)); })) return file;
  io_call("read", path);
  if (reading([&] { return fs::is_directory(path); }))
    throw BadInput("checkpoint.directory " + directory + ": " + path +
                   " is a directory, where forge keeps a list of the run's jobs; legal: another checkpoint.directory");
  std::istringstream in(read_text_file(path, most_bytes, "the list of a run's jobs"));
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!read_line(line, file))
      throw BadInput(
          path + ", line " + std::to_string(number) + ": " + "'" + printable(line, 100) +
          "' is no line of forge's; legal: job NAME, model old.N/step_N, moving STEP old.N; without the file "
          "no job is known as the one that wrote these checkpoints");
  }
  return file;
}

void write_file(const std::string& directory, const RunMarker& marker, const Move& move) {
  std::string text;
  for (const std::string& job : marker.jobs) text += "job " + job + "\n";
  if (!marker.model.empty()) text += "model " + marker.model + "\n";
  if (!move.aside.empty()) text += "moving " + std::to_string(move.after) + " " + move.aside + "\n";
  const std::string path = directory + "/" + marker_name;
  if (text.empty()) {
    io_call("remove", path);
    fs::remove(path);
    return;
  }
  fs::create_directories(directory);
  OutputFile file(path, directory + "/." + marker_name + "." + draw_nonce() + ".tmp");
  file.file().write_at(0, text.data(), text.size());
  file.commit();
}

// A directory that a start left half moved.
void finish_move(const std::string& directory, MarkerFile& file) {
  if (file.move.aside.empty()) return;
  move_steps_aside(directory, file.move.after, file.move.aside);
  write_file(directory, file.marker, {});
}

}  // namespace

bool RunMarker::has(const std::string& job) const {
  return !job.empty() && std::find(jobs.begin(), jobs.end(), job) != jobs.end();
}

RunMarker read_run_marker(const std::string& directory) {
  return with_io_errors([&] {
    MarkerFile file = read_file(directory);
    finish_move(directory, file);
    return file.marker;
  });
}

bool take_over(const std::string& directory, std::int64_t after, const std::string& aside, const RunMarker& marker) {
  return with_io_errors([&] {
    const auto steps = committed_steps(directory);
    const bool moves = !steps.empty() && steps.front().step > after;
    if (moves) {
      write_file(directory, marker, {aside, after});
      move_steps_aside(directory, after, aside);
    }
    write_file(directory, marker, {});
    return moves;
  });
}

}  // namespace forge

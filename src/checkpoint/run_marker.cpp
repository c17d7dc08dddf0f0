#include "checkpoint/run_marker.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "checkpoint/directory.hpp"
#include "checkpoint/io_errors.hpp"
#include "config/file_handle.hpp"
#include "core/faults.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr const char* marker_name = "run";
constexpr const char* temporary_name = ".run.tmp";

// What a start is moving: the steps behind `after`.
struct Move {
  std::string aside;  // "" nothing
  std::int64_t after = -1;
};

struct MarkerFile {
  RunMarker marker;
  Move move;
};

// A line each: "job NAME", "model PATH", "moving AFTER NAME".
MarkerFile read_file(const std::string& directory) {
  const std::string path = directory + "/" + marker_name;
  MarkerFile file;
  if (!fs::exists(path)) return file;
  io_call("read", path);
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const std::size_t blank = line.find(' ');
    const std::string key = line.substr(0, blank), value = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (key == "job") file.marker.jobs.push_back(value);
    if (key == "model") file.marker.model = value;
    const std::size_t name = value.find(' ');
    if (key != "moving" || name == std::string::npos) continue;
    std::from_chars(value.data(), value.data() + name, file.move.after);
    file.move.aside = value.substr(name + 1);
  }
  if (!in.eof()) throw IoFailed("reading " + path + " failed");
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
  FileHandle file = FileHandle::open_to_write(directory + "/" + temporary_name);
  file.write_at(0, text.data(), text.size());
  file.commit_as(path);
}

// A directory that a start left half moved, a marker half written.
void finish_move(const std::string& directory, MarkerFile& file) {
  fs::remove(directory + "/" + temporary_name);
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

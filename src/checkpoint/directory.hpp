#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/file_errors.hpp"

namespace forge {

// checkpoint.directory: step_00001000 and so on, each committed by the rename that gives it this name. Names that begin
// with "." are unfinished or about to go; they carry their job's nonce (".step_00001000.<nonce>.partial"), so that no
// job touches another one's. Failures throw IoFailed.

std::string step_name(std::int64_t step);
// The step of such a name, −1: it is none.
std::int64_t step_of_name(const std::string& name);

struct StepDirectory {
  std::int64_t step = 0;
  std::string path;
};
// The newest first. A directory that doesn't exist has none. Files and links that lead nowhere are none.
std::vector<StepDirectory> committed_steps(const std::string& directory);
// Entries with a step's name that are no directories: for the log.
std::vector<std::string> notes_of_strange_steps(const std::string& directory);

// Whether two paths lead to the same file or directory; false where either doesn't exist.
bool same_place(const std::string& a, const std::string& b);
// For the file `latest` that commit_step writes: the step's directory that it names; any other path as it is.
std::string named_by_latest(const std::string& path);

// An empty directory for a step that is being saved. Removes this job's own unfinished steps.
std::string start_step(const std::string& directory, std::int64_t step, const std::string& nonce);
// Gives a step that is complete and on the disk its name, in place of one that had it, and notes it in `latest`. A
// non-directory with the name gets another name (step_00001000.1). Returns "" or a note of it, for the log.
std::string commit_step(const std::string& directory, std::int64_t step, const std::string& nonce);
// Removes start_step's directory; a step that was on its way out gets its name back.
void abandon_step(const std::string& directory, std::int64_t step, const std::string& nonce);
// Removes a committed step.
void remove_step(const std::string& directory, const StepDirectory& step, const std::string& nonce);

// Tidies up after killed jobs: unfinished steps, removals; a step whose replacement was cut short comes back. Files
// that `is_left_over` says no to stay, and are returned.
std::vector<std::string> tidy_directory(const std::string& directory,
                                        const std::function<bool(const std::string& path)>& is_left_over);
// "old.1" or the next name that is free.
std::string next_aside(const std::string& directory);
// Moves the steps behind `after` (−1: all) into "<directory>/<aside>", the newest last. May be called again where it
// was cut short.
void move_steps_aside(const std::string& directory, std::int64_t after, const std::string& aside);

// f(), where an error of std::filesystem is an IoFailed.
template <class F>
auto with_io_errors(F f) {
  try {
    return f();
  } catch (const std::filesystem::filesystem_error& error) {
    const int number = error.code().value();
    if (number == ENOSPC || number == EDQUOT) throw NoSpace(text_of(error));
    throw IoFailed(text_of(error));
  }
}

}  // namespace forge

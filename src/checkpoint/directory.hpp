#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace forge {

// checkpoint.directory: step_00001000 and so on, each committed by the rename that gives it this name. Names that begin
// with "." are unfinished or about to go. Failures throw IoFailed.

std::string step_name(std::int64_t step);
// The step of such a name, −1: it is none.
std::int64_t step_of_name(const std::string& name);

struct StepDirectory {
  std::int64_t step = 0;
  std::string path;
};
// The newest first. A directory that doesn't exist has none.
std::vector<StepDirectory> committed_steps(const std::string& directory);

// An empty directory for a step that is being saved: "<directory>/.step_00001000.partial".
std::string start_step(const std::string& directory, std::int64_t step);
// Gives a step that is complete and on the disk its name, in place of one that had it, and notes it in `latest`.
void commit_step(const std::string& directory, std::int64_t step);
// Removes what start_step made.
void abandon_step(const std::string& directory, std::int64_t step);

// Removes all but the newest `keep_last` steps (0: all stay) and those that keep_every divides (0: none for that).
void prune_steps(const std::string& directory, std::int64_t keep_last, std::int64_t keep_every);
// Ends what a killed job has left: unfinished steps, removals; a step whose replacement was cut short comes back.
void tidy_directory(const std::string& directory);
// "old.1" or the next name that is free.
std::string next_aside(const std::string& directory);
// Moves the steps behind `after` (−1: all) into "<directory>/<aside>", the newest last. May be called again where it
// was cut short.
void move_steps_aside(const std::string& directory, std::int64_t after, const std::string& aside);

}  // namespace forge

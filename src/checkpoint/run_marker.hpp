#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

// <checkpoint.directory>/run: the batch jobs that the steps there come from. A start writes it when it takes effect, so
// that a job which its batch system starts again knows these steps as its own. It is also the journal of a start that
// moves steps aside: one that was killed meanwhile is ended by the next start. Without a job there is no such file.
// Failures throw IoFailed.
struct RunMarker {
  std::vector<std::string> jobs;  // the one that began the run, then those that went on with it
  std::string model;              // the source of the initial values, relative to the directory; "" elsewhere

  bool has(const std::string& job) const;
};

// Completes a killed start's work, and reads the file.
RunMarker read_run_marker(const std::string& directory);

// The start takes effect: the steps behind `after` (−1: all) go to "<directory>/<aside>", and `marker` becomes the
// directory's. True where there were any to move.
bool take_over(const std::string& directory, std::int64_t after, const std::string& aside, const RunMarker& marker);

}  // namespace forge

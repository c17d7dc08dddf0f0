#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.hpp"

namespace forge {

// When, where and how a job was started: what its log and job_info begin with, so that it is found again.
struct JobRecord {
  std::int64_t started = 0;            // seconds since 1970
  std::vector<std::string> arguments;  // of the program's call, its name first
  std::string directory;               // where relative paths start
  std::string deck;                    // its path
  std::string batch_system, job;       // "Slurm", "1234"; both empty without one
  int nodes = 1;
  std::vector<std::string> hosts;  // names of the first nodes
};

// Now, of this process; `deck`: the path as it was given.
JobRecord job_record(const std::string& deck, const World& world);

// "2026-11-28T02:10:11+01:00", in the zone of this process.
std::string iso_time(std::int64_t seconds);
// As a shell would take them, in one line.
std::string command_text(const std::vector<std::string>& arguments);
// The lines of the log's head.
std::string record_lines(const JobRecord& record);

}  // namespace forge

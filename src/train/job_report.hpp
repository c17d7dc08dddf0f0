#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/watchdog.hpp"
#include "comm/world.hpp"
#include "core/category.hpp"
#include "device/device_memory.hpp"
#include "parallel/timers.hpp"
#include "plan/setup.hpp"
#include "train/metrics.hpp"

namespace forge {

// When, where and how a job was started: the beginning of its log and of job_info, so that it is found again.
struct JobRecord {
  std::int64_t started = 0;            // seconds since 1970
  std::vector<std::string> arguments;  // the program's call, its name first
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
// The arguments as a shell would take them, in one line.
std::string command_text(const std::vector<std::string>& arguments);
// The lines of the log's head.
std::string record_lines(const JobRecord& record);

// Build, machine, layout, model, data and memory of a job: the head of its log, and job_info.
struct JobFacts {
  JobRecord record;
  DeviceInfo device;
  int ranks = 1, nodes = 1, threads = 1;
  double peak_flops = 0;  // of all ranks
  bool peak_measured = true;
  std::array<std::size_t, category_count> memory{};  // planned, of one rank
  std::int64_t training_tokens = 0, training_samples = 0;
  std::vector<std::string> data;                               // of mixtures and packed data, a line each
  std::string parameters;                                      // where they come from
  StartTimes start;                                            // so far
  std::vector<std::pair<std::string, std::string>> libraries;  // "HDF5", "1.10.8"
};
std::string job_header(const RunSetup& setup, const JobFacts& facts);
// The facts for programs, as one object: job_info.json.
std::string job_json(const RunSetup& setup, const JobFacts& facts);

// Lines of it that need no job: "9.23 G parameters; L 24, …", "16.98 GFLOP a token, …", "256 sequences of …",
// "49.82 GiB a rank: parameters …".
std::string model_text(const RunSetup& setup);
std::string work_text(const RunSetup& setup);
std::string batch_text(const RunSetup& setup);
std::string memory_text(const std::array<std::size_t, category_count>& bytes);
// "  model     " before such a text, and the line's end.
std::string titled_line(const char* title, const std::string& text);

// "forge 0.1.0, cpu, g++ 12.2.0, Release"
std::string build_description();

// Column titles of step_line, and one reported step.
std::string step_titles();
std::string step_line(const StepRecord& record, std::int64_t steps, double seconds_left);
std::string validation_line(const ValidationRecord& record);
std::string task_line(const TaskRecord& record);

// The table of a run's time: of the start by its parts, and by phase.
std::string time_table(const PhaseTimers& timers, const StartTimes& start, double total_seconds);

}  // namespace forge

#pragma once

#include <string>

#include "core/category.hpp"
#include "device/memory.hpp"
#include "parallel/timers.hpp"
#include "train/metrics.hpp"
#include "train/setup.hpp"

namespace forge {

// Build, machine, layout, model, data and memory of a job: the head of its log, and job_info.
struct JobFacts {
  DeviceInfo device;
  int ranks = 1, nodes = 1, threads = 1;
  double peak_flops = 0;  // of all ranks
  bool peak_measured = true;
  std::size_t arena_bytes = 0;  // planned, of one rank
  std::array<std::size_t, category_count> memory{};
  std::int64_t training_tokens = 0, training_samples = 0;
};
std::string job_header(const RunSetup& setup, const JobFacts& facts);

// "forge 0.1.0, cpu, g++ 12.2.0, Release"
std::string build_description();

// Column titles of step_line, and one reported step.
std::string step_titles();
std::string step_line(const StepRecord& record, std::int64_t steps, double seconds_left);

// Where the time went, by phase.
std::string time_table(const PhaseTimers& timers, double total_seconds);

// Bytes as text that a terminal shows; what isn't printable becomes '?' or its escape.
std::string printable(const std::string& bytes);

}  // namespace forge

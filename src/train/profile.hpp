#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/nvtx_range.hpp"
#include "device/timeline.hpp"
#include "plan/tasks.hpp"

namespace forge {

// The stream that a span ran in, as the planner names them (stream_of), and "exchanges" for collectives of layers
// behind their kernels.
std::string_view lane_of(const Timeline::Span& span);

// "forward F 3", "norm": a task's name in a trace.
std::string text_of_task(const Task& task);

// Likewise with its layer, in a profiler that listens.
std::optional<NvtxRange> range_of(const Task& task);

// A rank's step in Chrome's trace format, a thread a stream. `tasks`: the list that the spans' numbers index.
std::string profile_text(int rank, const std::vector<Task>& tasks, const std::vector<Timeline::Span>& spans);

// <directory>/profile/step_000010_rank_00003.json.
std::string profile_path(const std::string& directory, std::int64_t step, int rank);

// Writes the file. A failure is reported, and the run goes on: "" or the reason.
std::string write_profile(const std::string& path, const std::string& text);

}  // namespace forge

#include "train/profile.hpp"

#include <array>
#include <exception>
#include <filesystem>

#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "train/chrome_trace.hpp"

namespace forge {

namespace {

constexpr std::array<std::string_view, 6> lanes{"compute",   "parameters", "gradients",
                                                "transfers", "matrices",   "exchanges"};

std::int64_t number_of(std::string_view lane) {
  std::int64_t i = 0;
  while (lanes[to_size(i)] != lane) ++i;
  return i;
}

}  // namespace

std::string text_of_task(const Task& task) {
  return std::string(name_of(task.op)) + (task.of_step() ? "" : " " + text_of(task.action));
}

std::optional<NvtxRange> range_of(const Task& task) {
  if (!NvtxRange::listened_to()) return {};
  const std::string layer = task.layer < 0 ? "" : ", layer " + std::to_string(task.layer);
  return std::optional<NvtxRange>(std::in_place, text_of_task(task) + layer);
}

std::string_view lane_of(const Timeline::Span& span) {
  if (!span.behind) return "compute";
  if (span.group.find("parameter") != std::string_view::npos) return "parameters";
  if (span.group.find("gradient") != std::string_view::npos) return "gradients";
  if (span.group.find("matrices") != std::string_view::npos) return "matrices";
  return span.group == "pp" ? "transfers" : "exchanges";
}

std::string profile_text(int rank, const std::vector<Task>& tasks, const std::vector<Timeline::Span>& spans) {
  ChromeTrace trace;
  trace.name_process(rank, "rank " + std::to_string(rank));
  for (const std::string_view lane : lanes) trace.name_thread(rank, number_of(lane), std::string(lane));
  for (const Timeline::Span& span : spans) {
    const Task& task = tasks[to_size(span.task)];
    const std::string name =
        span.collective.empty() ? text_of_task(task) : std::string(span.collective) + ", " + std::string(span.group);
    JsonLine arguments;
    arguments.add("task", span.task).add("layer", task.layer);
    trace.span(rank, number_of(lane_of(span)), name, span.start, span.end, arguments);
  }
  return trace.text();
}

std::string profile_path(const std::string& directory, std::int64_t step, int rank) {
  const std::string name = formatted("step_%06lld_rank_%05d.json", static_cast<long long>(step), rank);
  return (std::filesystem::path(directory) / "profile" / name).string();
}

std::string write_profile(const std::string& path, const std::string& text) {
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_text_file(path, text);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace forge

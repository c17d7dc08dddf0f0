#include <optional>

#include "app/plan_text.hpp"
#include "core/to_size.hpp"
#include "train/chrome_trace.hpp"
#include "train/profile.hpp"

namespace forge {

namespace {

// The arena as it is when each task begins to compute, where it changes.
void add_memory(ChromeTrace& trace, std::int64_t rank, const std::vector<Span>& spans, const MemoryCourse& course) {
  std::optional<std::size_t> before;
  const auto same = [&](std::size_t a, std::size_t b) {
    return course.used[a] == course.used[b] && course.idle[a] == course.idle[b];
  };
  for (const Span& span : spans) {
    if (span.task < 0 || span.lane != Lane::compute) continue;
    const std::size_t task = to_size(span.task);
    if (before && same(*before, task)) continue;
    JsonLine bytes;
    for (int c = 0; c < category_count; ++c)
      bytes.add(name_of(static_cast<Category>(c)), course.used[task][to_size(c)]);
    trace.counter(rank, "memory", span.start, bytes.add("slots without contents", course.idle[task]));
    before = task;
  }
}

}  // namespace

std::string plan_trace(const Outcome& o, const std::vector<MemoryCourse>& memory) {
  constexpr const char* lanes[lane_count] = {"compute", "parameters", "gradients", "transfers", "exchanges"};
  ChromeTrace trace;
  for (std::size_t r = 0; r < o.time.spans.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    trace.name_process(rank, "pp rank " + std::to_string(r));
    for (int l = 0; l < lane_count; ++l) trace.name_thread(rank, l, lanes[l]);
    for (const Span& span : o.time.spans[r]) {
      if (span.task < 0) continue;
      const Task& task = o.time.tasks[r][to_size(span.task)];
      JsonLine arguments;
      arguments.add("task", span.task).add("layer", task.layer);
      trace.span(rank, static_cast<std::int64_t>(span.lane), text_of_task(task), span.start, span.end, arguments);
    }
    add_memory(trace, rank, o.time.spans[r], memory[r]);
  }
  return trace.text();
}

}  // namespace forge

#include "device/timeline.hpp"

namespace forge {

void Timeline::begin(Stream& compute) {
  compute_ = &compute;
  start_.record(compute);
}

std::optional<Timeline::Scope> Timeline::measure(Stream& stream, std::string_view collective, std::string_view group) {
  if (!running()) return {};
  Entry& entry = entries_.emplace_back();
  entry.stream = &stream;
  entry.span.task = task_;
  entry.span.collective = collective;
  entry.span.group = group;
  entry.span.behind = &stream != compute_;
  entry.start.record(stream);
  return std::optional<Scope>(std::in_place, entry.end, stream);
}

std::vector<Timeline::Span> Timeline::end() {
  std::vector<Span> spans;
  for (Entry& entry : entries_) {
    entry.stream->synchronize();
    entry.span.start = entry.start.seconds_since(start_);
    entry.span.end = entry.end.seconds_since(start_);
    spans.push_back(entry.span);
  }
  entries_.clear();
  compute_ = nullptr;
  task_ = -1;
  return spans;
}

}  // namespace forge

#include "device/timeline.hpp"

#include <algorithm>

namespace forge {

void Timeline::begin(Stream& compute, Of of) {
  compute_ = &compute;
  of_ = of;
  used_ = 0;
  start_.record(compute);
}

std::optional<Timeline::Scope> Timeline::measure(Stream& stream, std::string_view collective, std::string_view group) {
  if (!running() || (of_ == Of::waits && &stream != compute_)) return {};
  if (used_ == entries_.size()) entries_.emplace_back();
  Entry& entry = entries_[used_++];
  entry.stream = &stream;
  entry.span = {task_, collective, group, &stream != compute_};
  entry.start.record(stream);
  return std::optional<Scope>(std::in_place, entry.end, stream);
}

std::vector<Timeline::Span> Timeline::end() {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < used_; ++i) {
    Entry& entry = entries_[i];
    entry.stream->synchronize();
    entry.span.start = entry.start.seconds_since(start_);
    entry.span.end = entry.end.seconds_since(start_);
    spans.push_back(entry.span);
  }
  compute_ = nullptr;
  task_ = -1;
  return spans;
}

double Timeline::seconds_between_waits() {
  double seconds = 0, waited_until = 0;
  for (std::size_t i = 0; i < used_; ++i) {
    seconds += std::max(0.0, entries_[i].start.seconds_since(start_) - waited_until);
    waited_until = std::max(waited_until, entries_[i].end.seconds_since(start_));
  }
  return seconds;
}

}  // namespace forge

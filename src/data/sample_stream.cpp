#include "data/sample_stream.hpp"

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace forge {

std::int64_t SampleStream::place(std::int64_t taken) const {
  std::int64_t place = taken;
  for (const NumberRange& out : excluded_) {
    if (out.first > place) break;
    place += out.last - out.first + 1;
  }
  return place;
}

std::vector<NumberRange> SampleStream::places(std::int64_t taken, std::int64_t count) const {
  std::vector<NumberRange> ranges;
  for (std::int64_t n = taken; n < taken + count; ++n) {
    const std::int64_t next = place(n);
    if (!ranges.empty() && ranges.back().last + 1 == next)
      ranges.back().last = next;
    else
      ranges.push_back({next, next});
  }
  return ranges;
}

std::int64_t SampleStream::drawn(std::size_t source, std::int64_t taken) const {
  const std::int64_t end = place(taken);
  std::int64_t count = order_.drawn(source, end);
  for (const NumberRange& out : excluded_)
    if (out.first < end) count -= order_.drawn(source, out.last + 1) - order_.drawn(source, out.first);
  return count;
}

std::int64_t SampleStream::reached(std::size_t source, std::int64_t taken) const {
  return taken == 0 ? 0 : order_.drawn(source, place(taken - 1) + 1);
}

void SampleStream::check_ends(std::int64_t steps, const BatchSizes& batches) const {
  std::string wrong;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const DataSource& source = sources_[i];
    if (reached(i, batches.before(steps + 1)) <= source.most_samples) continue;
    std::int64_t good = 0, bad = steps;  // steps that the source lasts, and doesn't
    while (bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      (reached(i, batches.before(middle + 1)) <= source.most_samples ? good : bad) = middle;
    }
    wrong += (wrong.empty() ? "" : "\n") + (apart_ ? "data.sources: " + source.name : std::string("data.files")) +
             " ends at step " + std::to_string(bad) + " of " + std::to_string(steps) + ": it may give " +
             counted(source.most_samples, "sample") + " (" + std::to_string(source.sequence.count) +
             " in an epoch), and " + std::to_string(reached(i, batches.before(steps + 1))) +
             " are asked for; legal: fewer steps, a smaller weight, more max_epochs, or data.at_end: repeat without "
             "max_epochs";
  }
  if (!wrong.empty()) throw BadInput(wrong);
}

}  // namespace forge

#include "report/thinned_series.hpp"

#include "core/bytes.hpp"
#include "core/json.hpp"

namespace forge {

namespace {

using Run = ThinnedSeries::Run;

// `next` behind `run`.
void join(Run& run, const Run& next) {
  if (next.low < run.low) run.low = next.low, run.low_step = next.low_step;
  if (next.high > run.high) run.high = next.high, run.high_step = next.high_step;
  run.count += next.count;
  run.sum += next.sum;
  run.last = next.last;
  run.last_step = next.last_step;
}

}  // namespace

void ThinnedSeries::add(std::int64_t step, double value) {
  const Run one{1, step, step, step, value, value, value, value};
  ++count_;
  if (runs_.size() == most_ && runs_.back().count == width_) halve();
  if (!runs_.empty() && runs_.back().count < width_) return join(runs_.back(), one);
  runs_.push_back(one);
}

void ThinnedSeries::halve() {
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (i % 2 == 0)
      runs_[i / 2] = runs_[i];
    else
      join(runs_[i / 2], runs_[i]);
  }
  runs_.resize((runs_.size() + 1) / 2);
  width_ *= 2;
}

std::string ThinnedSeries::json() const {
  JsonLine line;
  line.add("width", width_).add("count", count_);
  line.add_raw("steps", json_of_runs(runs_, [](const Run& r) { return json_of(r.last_step); }));
  if (width_ == 1)
    return line.add_raw("values", json_of_runs(runs_, [](const Run& r) { return json_of(r.last); })).json();
  line.add_raw("values", json_of_runs(runs_, [](const Run& r) { return formatted("%.7g", r.mean()); }));
  line.add_raw("low", json_of_runs(runs_, [](const Run& r) { return json_of(r.low); }));
  line.add_raw("low_steps", json_of_runs(runs_, [](const Run& r) { return json_of(r.low_step); }));
  line.add_raw("high", json_of_runs(runs_, [](const Run& r) { return json_of(r.high); }));
  return line.add_raw("high_steps", json_of_runs(runs_, [](const Run& r) { return json_of(r.high_step); })).json();
}

}  // namespace forge

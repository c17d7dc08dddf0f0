#include "schedule/schedule_times.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "schedule/progress.hpp"

namespace forge {

namespace {

// Ends of F and B by stage and microbatch while the ranks are walked.
class Clock {
 public:
  Clock(const Schedule& schedule, const DurationOf& duration, double transfer)
      : schedule_(schedule),
        duration_(duration),
        transfer_(transfer),
        now_(to_size(schedule.ranks), 0.0),
        forward_end_(to_size(schedule.stages() * schedule.microbatches), 0.0),
        backward_end_(forward_end_) {}

  // `behind`: the other action of a pair, whose interval is the same; null: the action runs alone.
  Interval run(int rank, const Action& action, const Action* behind) {
    double start = start_of(rank, action), seconds = seconds_of(rank, action);
    if (behind) {
      start = std::max(start, start_of(rank, *behind));
      seconds += seconds_of(rank, *behind);
    }
    const Interval interval{start, start + seconds};
    end(rank, action, interval.end);
    if (behind) end(rank, *behind, interval.end);
    return interval;
  }

 private:
  double start_of(int rank, const Action& action) const {
    const int stage = schedule_.stage_at(rank, action.chunk);
    const int m = action.microbatch;
    const int last = schedule_.stages() - 1;
    double start = now_[to_size(rank)];
    const bool reads_input = action.op == Op::forward || action.op == Op::wait_recv_forward;
    const bool reads_gradient = computes_input_gradient(action.op) || action.op == Op::wait_recv_backward;
    if (reads_input && stage > 0) start = std::max(start, arrival(forward_end_, rank, stage - 1, m));
    if (reads_gradient && stage < last) start = std::max(start, arrival(backward_end_, rank, stage + 1, m));
    return start;
  }
  double seconds_of(int rank, const Action& action) const {
    return cost(action.op, schedule_.stage_at(rank, action.chunk));
  }
  void end(int rank, const Action& action, double time) {
    const std::size_t cell = to_size(schedule_.index(schedule_.stage_at(rank, action.chunk), action.microbatch));
    if (action.op == Op::forward) forward_end_[cell] = time;
    if (computes_input_gradient(action.op)) backward_end_[cell] = time;
    now_[to_size(rank)] = time;
  }

  double arrival(const std::vector<double>& ends, int rank, int stage, int m) const {
    return ends[to_size(schedule_.index(stage, m))] + (schedule_.places[to_size(stage)].rank == rank ? 0.0 : transfer_);
  }

  double cost(Op op, int stage) const {
    if (op == Op::backward) return duration_(Op::backward_input, stage) + duration_(Op::backward_weight, stage);
    return is_compute(op) ? duration_(op, stage) : 0.0;
  }

  const Schedule& schedule_;
  const DurationOf& duration_;
  double transfer_;
  std::vector<double> now_;
  std::vector<double> forward_end_, backward_end_;
};

}  // namespace

DurationOf uniform_durations(double forward, double backward_input, double backward_weight) {
  return [=](Op op, int) {
    switch (op) {
      case Op::forward:
        return forward;
      case Op::backward_input:
        return backward_input;
      case Op::backward_weight:
        return backward_weight;
      default:
        return 0.0;
    }
  };
}

double ScheduleTimes::bubble_fraction() const {
  const double total = std::accumulate(busy.begin(), busy.end(), 0.0);
  return makespan > 0 ? 1 - total / (static_cast<double>(busy.size()) * makespan) : 0;
}

ScheduleTimes timeline(const Schedule& schedule, const DurationOf& duration, double transfer) {
  ScheduleTimes result;
  result.intervals.resize(to_size(schedule.ranks));
  result.busy.assign(to_size(schedule.ranks), 0.0);
  Clock clock(schedule, duration, transfer);
  Progress progress(schedule);
  const bool complete = walk_all_ranks(schedule, progress, [&](int rank, int position, const Action& action) {
    std::vector<Interval>& intervals = result.intervals[to_size(rank)];
    const bool joined = position > 0 && schedule.actions[to_size(rank)][to_size(position - 1)].paired;
    const Interval interval =
        joined ? intervals.back() : clock.run(rank, action, action.paired ? &action + 1 : nullptr);
    intervals.push_back(interval);
    if (is_compute(action.op) && !joined) result.busy[to_size(rank)] += interval.end - interval.start;
    result.makespan = std::max(result.makespan, interval.end);
  });
  require(complete, "schedule: the ranks wait for each other (validate() names the actions)");
  return result;
}

}  // namespace forge

#include "timeline_problem.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "core/to_size.hpp"
#include "plan/traffic.hpp"
#include "predict/machine.hpp"
#include "predict/step_cost.hpp"
#include "predict/step_program.hpp"
#include "train/profile.hpp"

namespace forge::test {

namespace {

using Kind = Instruction::Kind;

constexpr std::array<std::string_view, lane_count> lane_names{"compute", "parameters", "gradients", "transfers"};

// When a task was under way in a stream.
struct Ran {
  int task;
  double start, first_end, end;  // of its first collective, and of all
};
using Lanes = std::array<std::vector<Ran>, lane_count>;

// Transfers of a group run as one, at its end.
std::vector<int> group_ends(const std::vector<Task>& tasks) {
  std::vector<int> ends(tasks.size());
  int end = -1;
  for (std::size_t t = tasks.size(); t-- > 0;) {
    if (tasks[t].op == TaskOp::transfer && tasks[t].action.op == Op::end_group) end = static_cast<int>(t);
    ends[t] = end >= 0 ? end : static_cast<int>(t);
    if (tasks[t].op == TaskOp::transfer && tasks[t].action.op == Op::begin_group) end = -1;
  }
  return ends;
}

// What ran, stream by stream: tasks in the compute stream, of the other streams their collectives. Exchanges within a
// layer belong to its task.
Lanes lanes_of(const std::vector<Timeline::Span>& spans) {
  Lanes lanes;
  for (const Timeline::Span& span : spans) {
    const auto lane = std::find(lane_names.begin(), lane_names.end(), lane_of(span));
    if (lane == lane_names.end() || (lane == lane_names.begin() && !span.collective.empty())) continue;
    std::vector<Ran>& ran = lanes[to_size(lane - lane_names.begin())];
    if (!ran.empty() && ran.back().task == span.task)
      ran.back().end = span.end;
    else
      ran.push_back({span.task, span.start, span.end, span.end});
  }
  return lanes;
}

// Follows the instructions of a rank with the times of what ran.
class Follower {
 public:
  Follower(const RunSetup& setup, const std::vector<Task>& tasks, const Lanes& lanes, StepCost& cost)
      : setup_(setup), tasks_(tasks), lanes_(lanes), cost_(cost), ends_(group_ends(tasks)) {}

  std::string follow(const std::vector<Instruction>& program) {
    for (const Instruction& i : program) {
      step(i);
      if (!problem_.empty()) return problem_;
    }
    for (std::size_t l = 0; l < lanes_.size(); ++l)
      for (; next_[l] < lanes_[l].size(); ++next_[l])
        if (!is_free(lanes_[l][next_[l]].task)) return text(l, lanes_[l][next_[l]].task) + " ran and isn't simulated";
    return "";
  }

 private:
  // Tasks that take the simulation no time.
  bool is_free(int task) { return cost_(setup_.share, tasks_[to_size(task)]).total() <= 0; }
  std::ptrdiff_t collectives_of(const Task& task) const {
    const auto sends = sends_of(setup_.buffers, setup_.share, task);
    return std::count_if(sends.begin(), sends.end(),
                         [&](const Sent& s) { return s.count > 0 && places_[to_size(s.group)].ranks > 1; });
  }
  // A reduction is simulated in two parts, of the shards and of the whole step; one that only adds to the rank's own
  // sums has no collective. One that rounds is simulated as a whole.
  bool is_measured(int task) {
    Task shards = tasks_[to_size(task)];
    if (shards.op != TaskOp::reduce_gradients) return true;
    if (setup_.share.units[shards.unit].zero.rounds_gradients) return collectives_of(shards) > 0;
    shards.last = false;
    const auto first = collectives_of(shards);
    const bool is_first = reduced_ != task && cost_(setup_.share, shards).total() > 0;
    reduced_ = task;
    return is_first ? first > 0 : collectives_of(tasks_[to_size(task)]) > first;
  }

  void step(const Instruction& i) {
    const auto lane = to_size(static_cast<int>(i.lane));
    switch (i.kind) {
      case Kind::run:
      case Kind::meet:
        if (is_measured(i.task)) run(lane, ends_[to_size(i.task)]);
        return;
      case Kind::follow:
        ready_[lane] = std::max(ready_[lane], done_[to_size(static_cast<int>(i.other))]);
        return;
      case Kind::record:
        events_[i.event] = done_[lane];
        return;
      case Kind::wait:
        if (const auto at = events_.find(i.event); at != events_.end())
          ready_[lane] = std::max(ready_[lane], at->second);
        return;
      default:
        return;
    }
  }

  void run(std::size_t lane, int task) {
    const std::vector<Ran>& ran = lanes_[lane];
    std::size_t& next = next_[lane];
    if (next > 0 && ran[next - 1].task == task) {  // of a group, or the other collectives of one task
      done_[lane] = std::max(done_[lane], ran[next - 1].end);
      return;
    }
    while (next < ran.size() && ran[next].task != task && is_free(ran[next].task)) pass(lane);
    if (next == ran.size() || ran[next].task != task) {
      problem_ = text(lane, task) + " is simulated, and " +
                 (next == ran.size() ? "nothing" : "task " + std::to_string(ran[next].task)) + " ran";
      return;
    }
    // A place in the pool is waited for within its task.
    const bool waits = tasks_[to_size(task)].op == TaskOp::clear_gradients;
    if ((waits ? ran[next].end : ran[next].start) < ready_[lane])
      problem_ = text(lane, task) + " began before what it waits for had ended";
    pass(lane);
  }
  void pass(std::size_t lane) {
    done_[lane] = std::max(done_[lane], lanes_[lane][next_[lane]].first_end);
    ++next_[lane];
  }

  std::string text(std::size_t lane, int task) const {
    return "stream of " + std::string(lane_names[lane]) + ": task " + std::to_string(task) + ", " +
           text_of_task(tasks_[to_size(task)]) + ",";
  }

  const RunSetup& setup_;
  const std::vector<Task>& tasks_;
  const Lanes& lanes_;
  StepCost& cost_;
  std::vector<int> ends_;
  const std::array<Placement, group_count> places_ = placements(setup_.mesh, 0, groups_of(setup_), 1);
  std::array<std::size_t, lane_count> next_{};
  std::array<double, lane_count> done_{}, ready_{};  // seconds: what a stream has done, and what comes next waits for
  std::map<std::int64_t, double> events_;
  int reduced_ = -1;  // the task of the last reduction
  std::string problem_;
};

// What runs in which order doesn't depend on the rates, as long as everything takes time.
Machine any_machine() {
  constexpr double rate = 1e9;
  Machine machine;
  machine.ranks_per_node = 1 << 16;
  machine.memory_bandwidth = rate;
  machine.row_fraction = 1;
  ComputeRates compute;
  compute.waves = {rate, 0, 0, 1, 1, 1, 1};
  for (const char* kernel : {"cuda_cores", "tensor_cores"}) compute.attention[kernel] = {{1}, {rate}, {rate}};
  machine.compute.fill(compute);
  machine.in_node.fill({{0, 0, rate}});
  return machine;
}

}  // namespace

std::string timeline_problem(const RunSetup& setup, const std::vector<Timeline::Span>& spans) {
  static const Machine machine = any_machine();
  StepCost cost(machine, setup);
  const std::vector<Task> tasks = step_tasks(setup.share, setup.schedule_of(1), setup.buffers.recompute);
  const auto program = step_program(setup.share, tasks, setup.schedule_of(1), setup.mesh.world(),
                                    [&](const RankShare& share, const Task& task) { return cost(share, task); });
  const Lanes lanes = lanes_of(spans);
  return Follower(setup, tasks, lanes, cost).follow(program);
}

}  // namespace forge::test

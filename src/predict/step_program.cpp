#include "predict/step_program.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/to_size.hpp"
#include "layout/unit_buffers.hpp"

namespace forge {

namespace {

class Compiler {
 public:
  Compiler(const RankShare& share, const Schedule& schedule, int world, const CostOf& cost, StreamUse use)
      : share_(share), schedule_(schedule), world_(world), cost_(cost), use_(use) {}

  std::vector<Instruction> compile(const std::vector<Task>& tasks) {
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      task_ = static_cast<int>(t);
      track_ = tasks[t].track;
      to_ = track_ < 0 ? &program_ : &tracks_[to_size(track_)].program;
      if (tasks[t].op == TaskOp::end_pair) take_turns();
      add(tasks[t]);
    }
    if (host_behind_ > 0) program_.push_back({Kind::follow, Lane::compute, Lane::compute, 0, host_behind_});
    return std::move(program_);
  }

 private:
  using Kind = Instruction::Kind;
  enum class Events : std::int64_t { gathered, free, transfers, matrices_gathered, matrices_returned, exchanged };
  static constexpr std::int64_t kinds_of_events = 6;

  // What the compute stream waits for before a task that runs there.
  static constexpr std::pair<TaskOp, Events> waits[] = {{TaskOp::clear_gradients, Events::free},
                                                        {TaskOp::compute_matrices, Events::matrices_gathered},
                                                        {TaskOp::update_matrices, Events::matrices_returned}};

  void add(const Task& task) {
    for (const auto& [op, before] : waits)
      if (op == task.op) mark(Kind::wait, Lane::compute, event(before, task));
    switch (task.op) {
      case TaskOp::gather:
        return gather(task);
      case TaskOp::wait_parameters:
        return mark(Kind::wait, Lane::compute, event(Events::gathered, task));
      case TaskOp::reduce_gradients:
        if (is_at_once(task)) return;
        if (world_ == 1 || !behind(task)) return run(Lane::compute, task);
        return reduce(task);
      case TaskOp::reduce_tied:
        return meet(Lane::gradients, task, -1, share_.table_stages);
      case TaskOp::wait_gradients:
        follow(Lane::compute, Lane::gradients);
        return run(Lane::compute, task);
      case TaskOp::clip:
        return meet(Lane::compute, task, -2, schedule_.ranks);
      case TaskOp::read:
        return read(task);
      case TaskOp::gather_matrices:
        return exchange(task, Events::matrices_gathered);
      case TaskOp::return_matrices:
        return exchange(task, Events::matrices_returned);
      case TaskOp::transfer:
        return transfer(task);
      default:
        return run(Lane::compute, task);
    }
  }

  // The host knows the step's scalars before it gives out the update: what it does between two steps runs behind that.
  void read(const Task& task) {
    TaskCost cost = cost_(share_, task);
    host_behind_ += std::exchange(cost.host, 0);
    run(Lane::compute, cost);
    mark(Kind::host_wait, Lane::compute, 0);
  }

  // A buffer of the pool is free when the shards' sums are there, before those of the whole step, which are made in the
  // place where they are rounded.
  void reduce(const Task& task) {
    if (share_.units[task.unit].zero.rounds_gradients) {
      follow(Lane::gradients, Lane::compute);
      run(Lane::gradients, task);
      if (task.buffer >= 0) mark(Kind::record, Lane::gradients, event(Events::free, task));
      return;
    }
    Task shards = task;
    shards.last = false;
    const TaskCost of_shards = cost_(share_, shards);
    follow(Lane::gradients, Lane::compute);
    run(Lane::gradients, of_shards);
    if (task.buffer >= 0) mark(Kind::record, Lane::gradients, event(Events::free, task));
    if (task.last) run(Lane::gradients, cost_(share_, task) - of_shards);
  }

  bool behind(const Task& reduction) const {
    return share_.units[reduction.unit].zero.gathers() ? !use_.shards_at_once : use_.gradients_behind;
  }

  bool is_at_once(const Task& task) const { return use_.shards_at_once && is_shared_at_once(share_.units[task.unit]); }

  // In the stream of matrices: that of gradients, which has ended by then, stands for it.
  void exchange(const Task& task, Events done) {
    if (share_.matrices.buffers == 1) return run(Lane::compute, task);
    follow(Lane::gradients, Lane::compute);
    run(Lane::gradients, task);
    mark(Kind::record, Lane::gradients, event(done, task));
  }

  void gather(const Task& task) {
    if (is_at_once(task)) {
      if (!gathered_at_once_) run(Lane::compute, task);
      gathered_at_once_ = true;
      return mark(Kind::record, Lane::compute, event(Events::gathered, task));
    }
    const Lane lane = use_.shards_at_once ? Lane::compute : Lane::parameters;
    if (lane != Lane::compute) follow(lane, Lane::compute);
    run(lane, task);
    mark(Kind::record, lane, event(Events::gathered, task));
  }

  void transfer(const Task& task) {
    const Action& action = task.action;
    if (action.op == Op::begin_group) {
      follow(Lane::transfers, Lane::compute);
      return mark(Kind::begin_group, Lane::transfers, 0);
    }
    if (action.op == Op::end_group) return mark(Kind::end_group, Lane::transfers, 0);
    const std::int64_t key = transfer_key(action);
    if (!is_post(action.op)) return mark(Kind::wait, Lane::compute, key);
    follow(Lane::transfers, Lane::compute);
    if (use_.transfer > 0) to_->push_back({Kind::run, Lane::compute, Lane::compute, use_.transfer, 0, 0, 1, task_});
    meet(Lane::transfers, task, meeting_of(action), 2);
    mark(Kind::record, Lane::transfers, key);
  }

  // The rank's own number of an event.
  std::int64_t event(Events what, const Task& task) const {
    // The buffer of a pool belongs to units of a class, one after the other.
    const std::int64_t of =
        what == Events::free ? task.buffer * pool_classes + static_cast<std::int64_t>(pool_of(share_.units[task.unit]))
        : task.round >= 0    ? task.round
                             : static_cast<std::int64_t>(task.unit);
    return static_cast<std::int64_t>(what) + kinds_of_events * of;
  }
  std::int64_t transfer_key(const Action& a) const {
    const std::int64_t pair = std::int64_t{a.chunk} * schedule_.microbatches + a.microbatch;
    return static_cast<std::int64_t>(Events::transfers) +
           kinds_of_events * (4 * pair + 2 * is_send(a.op) + is_forward_transfer(a.op));
  }
  // The same on both sides of a transfer: by the stage that sends.
  std::int64_t meeting_of(const Action& a) const {
    const bool up = is_forward_transfer(a.op);
    int stage = schedule_.stage_at(share_.pp_rank, a.chunk);
    if (!is_send_post(a.op)) stage += up ? -1 : 1;
    return 2 * std::int64_t{schedule_.index(stage, a.microbatch)} + up;
  }

  void run(Lane lane, const Task& task) { run(lane, cost_(share_, costed_task(share_, task, use_))); }
  // A track's task: computation in the compute stream, collectives in the stream of exchanges. Behind each collective
  // the other track has a turn. A collective that the pass itself hides stays in the compute stream.
  void run_track(const TaskCost& cost) {
    Track& track = tracks_[to_size(track_)];
    double left = cost.total(), host = cost.host;
    const auto compute = [&](double seconds) {
      Instruction i{Kind::run, Lane::compute, Lane::compute, seconds, std::exchange(host, 0)};
      i.task = task_;
      left -= seconds;
      to_->push_back(i);
    };
    if (cost.wires)
      for (Wire wire : *cost.wires) {
        compute(std::exchange(wire.before, 0));
        const Lane lane = wire.computed > 0 ? Lane::compute : Lane::exchanges;
        Instruction i{Kind::run, lane, Lane::compute, wire.latency + wire.seconds};
        i.task = task_;
        i.wires = std::make_shared<const Wires>(1, wire);
        left -= i.seconds;
        if (lane != Lane::compute) follow(lane, Lane::compute);
        to_->push_back(i);
        if (lane == Lane::compute) continue;
        const std::int64_t done = static_cast<std::int64_t>(Events::exchanged) + kinds_of_events * track_;
        mark(Kind::record, lane, done);
        track.turns.push_back(to_->size());
        mark(Kind::wait, Lane::compute, done);
      }
    compute(std::max(left, 0.0));
  }

  // The tracks' programs in the order in which the executor gives them to streams.
  void take_turns() {
    std::array<std::size_t, 2> at{}, turn{};
    const auto ended = [&](std::size_t t) { return at[t] == tracks_[t].program.size(); };
    for (std::size_t t = 0; !ended(0) || !ended(1); t = 1 - t) {
      const Track& track = tracks_[t];
      const std::size_t end = turn[t] < track.turns.size() ? track.turns[turn[t]++] : track.program.size();
      for (; at[t] < end; ++at[t]) program_.push_back(track.program[at[t]]);
    }
    tracks_ = {};
  }

  void run(Lane lane, const TaskCost& cost) {
    if (cost.total() <= 0 && cost.host <= 0) return;
    if (track_ >= 0 && lane == Lane::compute) return run_track(cost);
    Instruction i{Kind::run, lane};
    i.seconds = cost.total();
    i.host = cost.host;
    i.task = task_;
    i.wires = cost.wires;
    to_->push_back(i);
  }
  void meet(Lane lane, const Task& task, std::int64_t meeting, int members) {
    const TaskCost cost = cost_(share_, task);
    Instruction i{members > 1 ? Kind::meet : Kind::run, lane};
    i.seconds = cost.total();
    i.host = cost.host;
    i.event = meeting;
    i.members = members;
    i.task = task_;
    i.wires = cost.wires;
    to_->push_back(i);
  }
  void follow(Lane lane, Lane other) {
    Instruction i{Kind::follow, lane};
    i.other = other;
    to_->push_back(i);
  }
  void mark(Kind kind, Lane lane, std::int64_t event) {
    Instruction i{kind, lane};
    i.event = event;
    i.task = task_;
    to_->push_back(i);
  }

  const RankShare& share_;
  const Schedule& schedule_;
  int world_;
  const CostOf& cost_;
  StreamUse use_;
  int task_ = 0;
  bool gathered_at_once_ = false;
  double host_behind_ = 0;  // seconds of the host between this step and the next
  std::vector<Instruction> program_;
  // Of a pair at hand: the program of each, and the places before which the other one has a turn.
  struct Track {
    std::vector<Instruction> program;
    std::vector<std::size_t> turns;
  };
  std::array<Track, 2> tracks_;
  int track_ = -1;
  std::vector<Instruction>* to_ = &program_;  // of the track at hand
};

}  // namespace

bool is_shared_at_once(const LocalUnit& unit) {
  return unit.zero.stage == 1 && unit.zero.gathers() && !unit.zero.adds_in_buffers();
}

Task costed_task(const RankShare& share, const Task& task, const StreamUse& use) {
  if (!use.shards_at_once) return task;
  if (task.op == TaskOp::gather && is_shared_at_once(share.units[task.unit])) return {TaskOp::gather, {}};
  if (task.op == TaskOp::wait_gradients && std::any_of(share.units.begin(), share.units.end(), is_shared_at_once))
    return {TaskOp::reduce_gradients, {}};
  return task;
}

std::string_view name_of(CostPart part) {
  constexpr std::string_view names[cost_part_count] = {"products",  "attention", "rows",       "tp",
                                                       "cp",        "ep",        "parameters", "gradients",
                                                       "transfers", "scalars",   "optimizer"};
  return names[to_size(part)];
}

TaskCost operator-(TaskCost a, const TaskCost& b) {
  for (std::size_t i = 0; i < a.seconds.size(); ++i) a.seconds[i] -= b.seconds[i];
  a.host -= b.host;
  a.flops -= b.flops;
  if (b.wires) a.wires = std::make_shared<Wires>(a.wires->begin() + std::ssize(*b.wires), a.wires->end());
  return a;
}

double TaskCost::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::vector<Instruction> step_program(const RankShare& share, const std::vector<Task>& tasks, const Schedule& schedule,
                                      int world, const CostOf& cost, StreamUse use) {
  return Compiler(share, schedule, world, cost, use).compile(tasks);
}

}  // namespace forge

#include "predict/simulation.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <unordered_map>

#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

using Number = std::int64_t;  // of an operation; 0: none
constexpr double never = std::numeric_limits<double>::infinity();

// What a stream was given.
struct Operation {
  int rank;
  Lane lane;
  double left;  // seconds of work, at full speed
  int task;
  std::int64_t meeting;  // −1: none
  int members;
  Number before;                 // of the same stream
  std::size_t waits, waits_end;  // of other streams: a part of the engine's list
  // Of those that wait for its end: links in the engine's list; -1: none.
  std::int64_t first_follower = -1, last_follower = -1;
  double start = -1, end = never;
  double speed = 0, since = 0;  // while it runs
  unsigned version = 0;         // of its place in the queue of ends
  double ready = 0;             // when the last it waited for had ended
  Lane waited_for = Lane::compute;
};

struct Host {
  std::size_t at = 0;
  double free = 0;  // when it goes on
  Number waits = 0;
  std::array<Number, lane_count> tail{};
  std::unordered_map<std::int64_t, Number> events;
  std::array<std::vector<Number>, lane_count> waits_of_lane;  // for the lane's next operation
  std::vector<Number> group;                                  // what the open group has been given
  std::vector<Number> waits_of_group;                         // for each of them
  std::vector<std::int64_t> events_of_group;                  // that its end records
  bool groups = false;
  bool queued = false;
};

// What its host gives a stream.
bool is_operation(const Instruction& i) {
  using Kind = Instruction::Kind;
  return i.kind == Kind::run || i.kind == Kind::meet || i.kind == Kind::end_group;
}

class Engine {
 public:
  Engine(const std::vector<std::vector<Instruction>>& programs, const SimulatedMachine& machine)
      : programs_(programs), machine_(machine), hosts_(programs.size()), running_(programs.size()) {
    std::size_t count = 1;
    for (const auto& program : programs) count += to_size(std::count_if(program.begin(), program.end(), is_operation));
    operations_.reserve(count);  // so that none moves
    operations_.push_back({});   // number 0
    operations_.front().end = 0;
    result_.ranks.resize(programs.size());
    result_.busy.assign(programs.size(), 0.0);
  }

  Simulated run() {
    for (std::size_t r = 0; r < hosts_.size(); ++r) wake(r, 0);
    while (step()) {
    }
    for (std::size_t r = 0; r < hosts_.size(); ++r)
      require(hosts_[r].at == programs_[r].size(), "simulation: the ranks wait for each other");
    require(running_count_ == 0 && pending_ == 0, "simulation: what a stream was given never ran");
    for (auto& spans : result_.ranks)
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
    result_.seconds = now_;
    return std::move(result_);
  }

 private:
  struct Due {
    double time;
    bool host;
    std::int64_t which;  // a rank or an operation
    unsigned version;
    bool operator>(const Due& o) const {
      if (time != o.time) return time > o.time;
      if (host != o.host) return host && !o.host;  // ends before hosts
      return which > o.which;
    }
  };

  bool step() {
    if (due_.empty()) return false;
    const Due due = due_.top();
    due_.pop();
    if (due.host) {
      now_ = std::max(now_, due.time);
      hosts_[to_size(due.which)].queued = false;
      walk(to_size(due.which));
    } else if (operations_[to_size(due.which)].version == due.version) {
      now_ = std::max(now_, due.time);
      finish(due.which);
    }
    return true;
  }

  // ---- hosts

  void wake(std::size_t rank, double time) {
    if (hosts_[rank].queued) return;
    hosts_[rank].queued = true;
    due_.push({time, true, static_cast<std::int64_t>(rank), 0});
  }

  void walk(std::size_t rank) {
    Host& host = hosts_[rank];
    const auto& program = programs_[rank];
    while (host.at < program.size()) {
      if (host.waits && operations_[to_size(host.waits)].end == never) return;  // woken by its end
      host.waits = 0;
      host.free = std::max(host.free, now_);
      const Instruction& i = program[host.at++];
      obey(rank, i);
      if (i.host > 0) {
        host.free += i.host;
        return wake(rank, host.free);
      }
    }
  }

  void obey(std::size_t rank, const Instruction& i) {
    Host& host = hosts_[rank];
    const auto lane = to_size(i.lane);
    switch (i.kind) {
      case Instruction::Kind::follow:
        add_wait(host, lane, host.tail[to_size(i.other)]);
        return;
      case Instruction::Kind::record:
        if (host.groups) return host.events_of_group.push_back(i.event);
        host.events[i.event] = host.tail[lane];
        return;
      case Instruction::Kind::wait:
        if (const auto e = host.events.find(i.event); e != host.events.end()) add_wait(host, lane, e->second);
        return;
      case Instruction::Kind::host_wait:
        host.waits = last_of(host, lane);
        return;
      case Instruction::Kind::begin_group:
        host.groups = true;
        host.waits_of_group.swap(host.waits_of_lane[lane]);
        return host.waits_of_lane[lane].clear();
      case Instruction::Kind::end_group:
        host.groups = false;
        host.waits_of_lane[lane].swap(host.group);
        host.group.clear();
        give(rank, i);
        for (const std::int64_t event : host.events_of_group) host.events[event] = host.tail[lane];
        return host.events_of_group.clear();
      case Instruction::Kind::run:
      case Instruction::Kind::meet:
        give(rank, i);
        if (machine_.host_computes && i.lane == Lane::compute) host.waits = host.tail[lane];
    }
  }

  // What the lane was given last, a wait included.
  Number last_of(Host& host, std::size_t lane) {
    Number last = host.tail[lane];
    for (const Number n : host.waits_of_lane[lane])
      if (operations_[to_size(n)].end == never) last = n;
    return last;
  }
  void add_wait(Host& host, std::size_t lane, Number n) {
    if (n == 0 || n == host.tail[lane]) return;
    host.waits_of_lane[lane].push_back(n);
  }

  void give(std::size_t rank, const Instruction& i) {
    Host& host = hosts_[rank];
    const auto lane = to_size(i.lane);
    const auto number = static_cast<Number>(operations_.size());
    const bool meets = i.kind == Instruction::Kind::meet;
    const std::size_t waits = waits_.size();
    take_waits(host.waits_of_lane[lane]);
    host.waits_of_lane[lane].clear();
    if (host.groups) take_waits(host.waits_of_group);
    operations_.push_back({static_cast<int>(rank), i.lane, i.seconds, i.task, meets ? i.event : -1, i.members,
                           host.tail[lane], waits, waits_.size()});
    if (host.groups)
      host.group.push_back(number);
    else
      host.tail[lane] = number;
    ++pending_;
    Operation& op = operations_.back();
    op.ready = now_;
    follow(op.before, number);
    for (const Number n : waits_of(op)) follow(n, number);
    try_start(number);
  }
  void take_waits(const std::vector<Number>& of_host) { waits_.insert(waits_.end(), of_host.begin(), of_host.end()); }
  std::span<const Number> waits_of(const Operation& op) const {
    return std::span(waits_).subspan(op.waits, op.waits_end - op.waits);
  }
  // `follower` is tried when `number` ends, unless that has ended.
  void follow(Number number, Number follower) {
    Operation& op = operations_[to_size(number)];
    if (op.end != never) return;
    const auto link = static_cast<std::int64_t>(followers_.size());
    (op.last_follower < 0 ? op.first_follower : followers_[to_size(op.last_follower)].next) = link;
    op.last_follower = link;
    followers_.push_back({follower, -1});
  }

  // ---- streams

  void try_start(Number number) {
    Operation& op = operations_[to_size(number)];
    if (op.start >= 0 || operations_[to_size(op.before)].end == never) return;
    for (const Number n : waits_of(op))
      if (operations_[to_size(n)].end == never) return;
    for (const Number n : waits_of(op))
      if (operations_[to_size(n)].end > std::max(op.ready, operations_[to_size(op.before)].end)) {
        op.ready = operations_[to_size(n)].end;
        op.waited_for = operations_[to_size(n)].lane;
      }
    if (op.meeting < 0) return start(number);
    std::vector<Number>& present = meetings_[op.meeting];
    if (std::find(present.begin(), present.end(), number) != present.end()) return;
    present.push_back(number);
    if (std::ssize(present) < op.members) return;
    for (const Number n : present) {
      Operation& member = operations_[to_size(n)];
      if (member.lane == Lane::compute && n != number) member.waited_for = Lane::transfers;
      start(n);
    }
    meetings_.erase(op.meeting);
  }

  void start(Number number) {
    Operation& op = operations_[to_size(number)];
    op.start = op.since = now_;
    --pending_;
    ++running_count_;
    auto& running = running_[to_size(op.rank)];
    running.push_back(number);
    if (machine_.cores > 0)
      refresh_all();
    else
      refresh(to_size(op.rank));
  }

  void finish(Number number) {
    Operation& op = operations_[to_size(number)];
    op.end = now_;
    ++op.version;
    --running_count_;
    auto& running = running_[to_size(op.rank)];
    running.erase(std::find(running.begin(), running.end(), number));
    note(op);
    if (machine_.cores > 0)
      refresh_all();
    else
      refresh(to_size(op.rank));
    const auto rank = to_size(op.rank);
    if (hosts_[rank].waits == number) wake(rank, now_);
    for (std::int64_t link = op.first_follower; link >= 0; link = followers_[to_size(link)].next)
      try_start(followers_[to_size(link)].follower);
  }

  void note(const Operation& op) {
    Span span{op.task, op.lane, op.start, op.end, op.waited_for, 0};
    if (op.lane == Lane::compute) {
      result_.busy[to_size(op.rank)] += op.end - op.start;
      span.waited = op.start - std::max(0.0, operations_[to_size(op.before)].end);
    }
    result_.ranks[to_size(op.rank)].push_back(span);
  }

  void refresh_all() {
    for (std::size_t r = 0; r < running_.size(); ++r) refresh(r);
  }
  // Sets the speeds of what a rank runs, and when it ends.
  void refresh(std::size_t rank) {
    const double wanted = running_count_ * machine_.per_stream;
    const double fraction = machine_.cores > 0 && wanted > machine_.cores ? machine_.cores / wanted : 1;
    const bool overlaps = running_[rank].size() > 1;
    for (const Number n : running_[rank]) {
      Operation& op = operations_[to_size(n)];
      const double speed = fraction * (overlaps && op.lane == Lane::compute ? machine_.overlap : 1);
      op.left = std::max(0.0, op.left - op.speed * (now_ - op.since));
      op.since = now_;
      if (op.speed == speed) continue;
      op.speed = speed;
      due_.push({now_ + op.left / speed, false, n, ++op.version});
    }
  }

  const std::vector<std::vector<Instruction>>& programs_;
  const SimulatedMachine& machine_;
  double now_ = 0;
  std::vector<Operation> operations_;
  std::vector<Number> waits_;  // of all operations
  struct Follower {
    Number follower;
    std::int64_t next;
  };
  std::vector<Follower> followers_;
  std::vector<Host> hosts_;
  std::vector<std::vector<Number>> running_;  // by rank
  int running_count_ = 0, pending_ = 0;
  std::map<std::int64_t, std::vector<Number>> meetings_;  // who has come
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  Simulated result_;
};

}  // namespace

Simulated simulate(const std::vector<std::vector<Instruction>>& programs, const SimulatedMachine& machine) {
  return Engine(programs, machine).run();
}

}  // namespace forge

#include "plan/repeat.hpp"

#include <map>
#include <set>
#include <utility>

#include "layout/layer_kinds.hpp"
#include "layout/unit_buffers.hpp"

namespace forge {

namespace {

bool has_experts(const StageLayer& layer) {
  return layer.kind == LayerKind::block && layer.second != no_unit;
}

// The layers of a chunk that are done again together with layer l.
Range repeated_with(const std::vector<StageLayer>& layers, int l) {
  Range all{l, l + 1};
  for (int other = 0; other < static_cast<int>(layers.size()); ++other)
    if (has_experts(layers[to_size(other)]) && layers[to_size(other)].state == layers[to_size(l)].state)
      all = {std::min<std::int64_t>(all.begin, other), std::max<std::int64_t>(all.end, other + 1)};
  return all;
}

// Which units stand in which places of the pools, and which of them layers may read, as tasks go by.
class Places {
 public:
  explicit Places(const RankShare& share) : share_(share) {}

  void follow(const Task& task) {
    if (task.op == TaskOp::gather && task.place >= 0) {
      content_[place_of(task.unit, task.place)] = task.unit;
      last_[task.unit] = task.place;
    }
    if (task.op == TaskOp::wait_parameters && task.place >= 0) held_.insert(task.unit);
    if (task.op == TaskOp::release) held_.erase(task.unit);
  }
  bool takes_turns(std::size_t unit) const {
    const Zero& zero = share_.units[unit].zero;
    return zero.gathers() && !zero.keeps_whole();
  }
  int last_place(std::size_t unit) const { return last_.at(unit); }
  bool has(std::size_t unit) const {
    const auto there = content_.find(place_of(unit, last_place(unit)));
    return there != content_.end() && there->second == unit;
  }
  bool holds(std::size_t unit) const { return held_.count(unit) > 0; }
  const std::set<std::size_t>& held() const { return held_; }
  // Units that stand elsewhere in `other`, or nowhere.
  std::vector<std::pair<std::size_t, int>> missing_in(const Places& other) const {
    std::vector<std::pair<std::size_t, int>> units;
    for (const auto& [place, unit] : content_)
      if (other.content_.at(place) != unit) units.emplace_back(unit, place.second);
    return units;
  }

 private:
  using Place = std::pair<PoolClass, int>;  // class of pools, place
  Place place_of(std::size_t unit, int place) const { return {pool_of(share_.units[unit]), place}; }

  const RankShare& share_;
  std::map<Place, std::size_t> content_;
  std::map<std::size_t, int> last_;
  std::set<std::size_t> held_;
};

// What is done again, from the places that the check finds to the same places.
class Repeat {
 public:
  Repeat(const RankShare& share, const Places& found) : share_(share), found_(found), now_(found) {}

  void forward(const Task& task) {
    for (const std::size_t unit : units_read(layer_of(task, share_), Pass::forward))
      if (now_.takes_turns(unit)) use(task, unit);
    tasks_.push_back(task);
  }
  std::vector<Task> finish(const Task& check) {
    const std::set<std::size_t> used = now_.held();
    for (const std::size_t unit : used)
      if (!found_.holds(unit)) add(check, TaskOp::release, unit, found_.last_place(unit));
    for (const auto& [unit, place] : found_.missing_in(now_)) {
      add(check, TaskOp::gather, unit, place);
      if (found_.holds(unit)) add(check, TaskOp::wait_parameters, unit, place);
    }
    return std::move(tasks_);
  }

 private:
  void use(const Task& task, std::size_t unit) {
    const int place = now_.last_place(unit);
    if (!now_.has(unit)) add(task, TaskOp::gather, unit, place);
    add(task, TaskOp::wait_parameters, unit, place);
  }
  void add(const Task& of, TaskOp op, std::size_t unit, int place) {
    tasks_.push_back({op, of.action, -1, unit, place});
    now_.follow(tasks_.back());
  }

  const RankShare& share_;
  const Places& found_;
  Places now_;
  std::vector<Task> tasks_;
};

}  // namespace

std::vector<Task> with_checks(std::vector<Task> tasks, const RankShare& share) {
  if (!share.checks_overflow) return tasks;
  std::vector<Task> all;
  int checks = 0;
  for (const Task& task : tasks) {
    const bool counts = task.op == TaskOp::forward && has_experts(layer_of(task, share));
    const Range layers = counts ? repeated_with(share.layers[to_size(task.action.chunk)], task.layer) : Range{};
    const auto add = [&](TaskOp op) {
      all.push_back({op, task.action, task.layer});
      all.back().round = checks;
    };
    if (counts && task.layer == layers.begin) add(TaskOp::keep_sums);
    all.push_back(task);
    if (!counts || task.layer + 1 != layers.end) continue;
    add(TaskOp::check_overflow);
    ++checks;
  }
  return all;
}

std::vector<std::vector<Task>> forward_repeats(const std::vector<Task>& tasks, const RankShare& share) {
  std::vector<std::vector<Task>> repeats;
  Places places(share);
  std::vector<const Task*> passes;  // since the sums were kept
  for (const Task& task : tasks) {
    places.follow(task);
    if (task.op == TaskOp::keep_sums) passes.clear();
    if (task.op == TaskOp::forward) passes.push_back(&task);
    if (task.op != TaskOp::check_overflow) continue;
    Repeat repeat(share, places);
    for (const Task* pass : passes) repeat.forward(*pass);
    repeats.push_back(repeat.finish(task));
  }
  return repeats;
}

}  // namespace forge

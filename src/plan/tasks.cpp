#include "plan/tasks.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "layout/unit_buffers.hpp"
#include "plan/gather_pool.hpp"
#include "schedule/lower.hpp"

namespace forge {

const StageLayer& layer_of(const Task& task, const RankShare& share) {
  return share.layers[to_size(task.action.chunk)][to_size(task.layer)];
}

LayerPass pass_of(const Task& task, const RankShare& share) {
  // In the order of TaskOp.
  constexpr Pass passes[] = {Pass::forward, Pass::backward_input, Pass::backward_input, Pass::backward_weight,
                             Pass::backward};
  if (task.op < TaskOp::forward || task.op > TaskOp::backward) return {};
  const Pass pass = passes[to_size(task.op) - to_size(TaskOp::forward)];
  return {&layer_of(task, share), pass, task.op == TaskOp::recompute};
}

namespace {

// One layer's part of a compute action.
struct Step {
  Pass pass;
  int layer;
  std::vector<std::size_t> acquires, releases;  // units whose parameters it reads: before and behind it
  // Units to whose gradients it adds; of these, those that nothing in its pass adds to later.
  std::vector<std::size_t> adds_to, finishes;
};

bool contains(const std::vector<std::size_t>& units, std::size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

// The units that each step adds gradients to, and those of them that no later step of its pass does.
void find_finished(const std::vector<StageLayer>& layers, std::vector<Step>& steps) {
  std::set<std::pair<Pass, std::size_t>> later;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    step->adds_to = units_completed(layers[to_size(step->layer)], step->pass);
    for (const std::size_t unit : step->adds_to) {
      const Pass completing = step->pass == Pass::backward ? Pass::backward_weight : step->pass;
      if (later.insert({completing, unit}).second) step->finishes.push_back(unit);
    }
  }
}

std::vector<Step> steps_of(const std::vector<StageLayer>& layers, Op op, bool training, int tp) {
  std::vector<Step> steps;
  const auto add = [&](Pass pass, int l) {
    const StageLayer& layer = layers[to_size(l)];
    if (does(layer, pass) && (training || !layer.trains_only())) steps.push_back({pass, l, {}, {}, {}, {}});
  };
  const int n = static_cast<int>(layers.size());
  for (int l = 0; op == Op::forward && l < n; ++l) add(Pass::forward, l);
  for (int l = n - 1; op != Op::forward && l >= 0; --l) {
    if (op == Op::backward && tp > 1 && does(layers[to_size(l)], Pass::backward)) {
      add(Pass::backward, l);
      continue;
    }
    if (computes_input_gradient(op)) add(Pass::backward_input, l);
    if (computes_weight_gradient(op)) add(Pass::backward_weight, l);
  }
  // A unit is held from one step that reads it to the next.
  std::vector<std::size_t> held;
  Step* last = nullptr;
  for (Step& step : steps) {
    const auto reads = units_read(layers[to_size(step.layer)], step.pass);
    if (reads.empty()) continue;
    for (const std::size_t unit : held)
      if (!contains(reads, unit)) last->releases.push_back(unit);
    for (const std::size_t unit : reads)
      if (!contains(held, unit)) step.acquires.push_back(unit);
    held = reads;
    last = &step;
  }
  if (last) last->releases.insert(last->releases.end(), held.begin(), held.end());
  if (training) find_finished(layers, steps);
  return steps;
}

class Writer {
 public:
  Writer(const RankShare& share, const Schedule& schedule, bool training, bool recompute)
      : share_(share),
        list_(schedule.actions[to_size(share.pp_rank)]),
        schedule_(schedule),
        training_(training),
        recompute_(recompute),
        gathered_{GatherPool(share.units, !training, 0), GatherPool(share.units, !training, 1)},
        cleared_(share.units.size(), -1),
        steps_(share.layers.size()) {
    for (int c = 0; c < pool_classes; ++c)
      gradients_.push_back(training ? gradient_pool(share.units, static_cast<PoolClass>(c)) : PoolSize{});
    for (const Action& action : list_)
      if (action.op == Op::forward || computes_input_gradient(action.op)) readers_.push_back(action);
  }

  std::vector<Task> write() {
    if (training_) add(TaskOp::clear_sums);
    for (std::size_t i = 0; i < list_.size(); ++i) {
      action_ = list_[i];
      if (action_.paired)
        pair(list_[++i]);
      else
        is_compute(action_.op) ? compute() : move();
    }
    mark_last_reductions();
    if (training_) end_of_gradients();
    return std::move(tasks_);
  }

 private:
  const std::vector<StageLayer>& layers() const { return share_.layers[to_size(action_.chunk)]; }
  const StageContent& content() const { return share_.chunks[to_size(action_.chunk)]; }
  // Those of a compute action, which are the same for every microbatch.
  const std::vector<Step>& steps_for(const Action& action) {
    auto& known = steps_[to_size(action.chunk)][to_size(static_cast<int>(action.op))];
    if (!known) known = steps_of(share_.layers[to_size(action.chunk)], action.op, training_, share_.tp);
    return *known;
  }

  Task& add(TaskOp op, Regions reads = 0, Regions writes = 0) {
    tasks_.push_back({op, action_, -1, no_unit, -1, false, reads, writes});
    tasks_.back().track = track_;
    return tasks_.back();
  }
  void add_of_unit(TaskOp op, std::size_t unit, int buffer) {
    add(op).unit = unit;
    tasks_.back().buffer = buffer;
  }
  void add_frame(TaskOp op, LayerMemory frame, int layer = -1) {
    add(op).frame = frame;
    tasks_.back().layer = layer;
  }

  void end_of_gradients() {
    action_ = {};
    const std::size_t table = find_unit(share_.units, UnitKind::token_table);
    if (share_.table_stages > 1 && table != no_unit && !share_.units[table].frozen)
      add_of_unit(TaskOp::reduce_tied, table, -1);
    for (const TaskOp op : {TaskOp::wait_gradients, TaskOp::norm, TaskOp::clip}) add(op);
  }

  // ---- parameters

  const Zero& zero(std::size_t unit) const { return share_.units[unit].zero; }
  bool is_sharded(std::size_t unit) const { return zero(unit).gathers(); }
  // Passes that may run beside others gather into buffers of their own.
  GatherPool& pool_for(std::size_t unit, const Action& reader) {
    return gathered_[reader.op != Op::forward && zero(unit).tracks > 1 && !zero(unit).keeps_whole()];
  }

  // Starts what use() would wait for, where a buffer is free.
  void prefetch(std::size_t unit, const Action& reader) {
    if (!is_sharded(unit)) return;
    if (const auto buffer = pool_for(unit, reader).take(unit)) add_of_unit(TaskOp::gather, unit, *buffer);
  }
  void use(std::size_t unit) {
    if (!is_sharded(unit)) return;
    prefetch(unit, action_);
    GatherPool& pool = pool_for(unit, action_);
    if (pool.hold(unit)) add_of_unit(TaskOp::wait_parameters, unit, pool.buffer_of(unit));
  }
  void release(std::size_t unit) {
    if (zero(unit).keeps_whole()) return;
    GatherPool& pool = pool_for(unit, action_);
    pool.release(unit);
    add_of_unit(TaskOp::release, unit, pool.buffer_of(unit));
  }

  // What the first step from `at` on that uses other units uses: a layer's block and its experts are gathered together.
  void prefetch_next(const Action& reader, std::size_t at) {
    const std::vector<Step>& steps = steps_for(reader);
    while (at < steps.size() && steps[at].acquires.empty()) ++at;
    if (at == steps.size()) return;
    for (const std::size_t unit : steps[at].acquires) prefetch(unit, reader);
  }
  // Before the passes that read parameters: the first units of the first one, and one ahead of each chunk's turn.
  void prefetch_ahead() {
    const Action reader = readers_[reader_++];
    if (runs_pairs()) return;
    if (reader_ == 1) prefetch_next(reader, 0);
    if (reader_ < readers_.size() && readers_[reader_].chunk != reader.chunk) prefetch_next(readers_[reader_], 0);
  }
  // Where passes run in pairs: behind one, of the next one that has the same buffers.
  void prefetch_behind() {
    for (std::size_t next = reader_; runs_pairs() && next < readers_.size(); ++next)
      if ((readers_[next].op == Op::forward) == (action_.op == Op::forward)) return prefetch_next(readers_[next], 0);
  }
  bool runs_pairs() const { return training_ && tracks_of(share_.units) > 1; }

  // ---- gradients

  // Units whose matrices are reduced or rounded after each microbatch add to a buffer of a pool.
  bool adds_to_pool(std::size_t unit) const {
    return zero(unit).adds_in_buffers() && share_.units[unit].vectors_begin > 0;
  }
  void clear(std::size_t unit) {
    if (!adds_to_pool(unit) || cleared_[unit] >= 0) return;
    const auto c = to_size(pool_of(share_.units[unit]));
    const PoolSize& pool = gradients_[c];
    const bool own = pool.of_forward && action_.op == Op::forward;
    cleared_[unit] = own ? pool.buffers - 1 : next_[c]++ % (pool.buffers - pool.of_forward);
    add_of_unit(TaskOp::clear_gradients, unit, cleared_[unit]);
  }
  void reduce(std::size_t unit) {
    add_of_unit(TaskOp::reduce_gradients, unit, cleared_[unit]);
    cleared_[unit] = -1;
  }
  // What isn't reduced each time is reduced once.
  void mark_last_reductions() {
    std::vector<char> seen(share_.units.size(), 0);
    for (auto task = tasks_.rbegin(); task != tasks_.rend(); ++task)
      if (task->op == TaskOp::reduce_gradients) task->last = !std::exchange(seen[task->unit], 1);
    std::erase_if(tasks_, [](const Task& t) { return t.op == TaskOp::reduce_gradients && t.buffer < 0 && !t.last; });
  }

  // ---- layers

  // The forward pass, which action_ is, stands first: it takes its slots before the backward pass frees any. Its steps
  // that add to a table to which the backward pass adds, too, follow the pair: so the order of sums is as without
  // pairs.
  void pair(const Action& backward) {
    const Action forward = action_;
    const std::size_t steps = steps_for(forward).size(), together = steps_beside(backward);
    add(TaskOp::begin_pair);
    track_ = 0;
    begin_pass();
    take_steps(0, together);
    if (together == steps) end_pass();
    track_ = 1;
    action_ = backward;
    compute();
    track_ = -1;
    add(TaskOp::end_pair);
    if (together == steps) return;
    action_ = forward;
    take_steps(together, steps);
    end_pass();
  }

  // How many steps of action_ may run beside `backward`: those before the first that adds to one of its units, and
  // before the private state that this one reads.
  std::size_t steps_beside(const Action& backward) {
    std::set<std::size_t> added;
    for (const Step& step : steps_for(backward)) added.insert(step.adds_to.begin(), step.adds_to.end());
    const std::vector<Step>& all = steps_for(action_);
    const auto shared = std::find_if(all.begin(), all.end(), [&](const Step& step) {
      return std::any_of(step.adds_to.begin(), step.adds_to.end(), [&](std::size_t u) { return added.count(u) > 0; });
    });
    auto n = to_size(shared - all.begin());
    while (n > 0 && n < all.size() && is_private_state(content(), layers()[to_size(all[n - 1].layer)])) --n;
    return n;
  }

  void compute() {
    begin_pass();
    take_steps(0, steps_for(action_).size());
    end_pass();
  }

  // A stage may have no slope to compute.
  bool streams() { return action_.op == Op::backward && !steps_for(action_).empty(); }

  void begin_pass() {
    if (action_.op != Op::backward_weight) prefetch_ahead();
    if (action_.op == Op::forward) {
      const bool first = schedule_.stage_at(share_.pp_rank, action_.chunk) == 0;
      add(TaskOp::load_batch, 0, set_of(Region::saved) | (first ? set_of(Region::input) : 0u));
    }
    if (streams()) add_frame(TaskOp::open, LayerMemory::stream);
  }

  void take_steps(std::size_t begin, std::size_t end) {
    const std::vector<Step>& all = steps_for(action_);
    for (std::size_t i = begin; i < end; ++i) {
      for (const std::size_t unit : all[i].acquires) prefetch(unit, action_);
      for (const std::size_t unit : all[i].acquires) use(unit);
      if (!all[i].acquires.empty()) prefetch_next(action_, i + 1);
      step(all[i]);
      for (const std::size_t unit : all[i].releases) release(unit);
      for (const std::size_t unit : all[i].finishes) reduce(unit);
    }
  }

  void end_pass() {
    if (streams()) add_frame(TaskOp::close, LayerMemory::stream);
    if (action_.op != Op::backward_weight) prefetch_behind();
    if (computes_weight_gradient(action_.op))
      add(TaskOp::retire, set_of(Region::saved) | set_of(Region::input) | set_of(Region::output_gradient) | left());
  }

  void step(const Step& step) {
    const StageLayer& layer = layers()[to_size(step.layer)];
    const auto add_of_layer = [&](TaskOp op, Regions reads, Regions writes) {
      add(op, reads, writes).layer = step.layer;
    };
    const bool fused = action_.op == Op::backward, frames = fused && layer.kind == LayerKind::block;
    const Regions read = set_of(Region::saved) | set_of(Region::input);
    const bool recomputed = (recompute_ || layer.recomputes_all) && recomputes(layer);
    for (const std::size_t unit : step.adds_to) clear(unit);
    switch (step.pass) {
      case Pass::forward:
        if (is_private_state(content(), layer)) add_frame(TaskOp::open, LayerMemory::state, step.layer);
        add_of_layer(TaskOp::forward, read, set_of(Region::saved) | written_edge(step.layer));
        if (step.layer > 0 && is_private_state(content(), layers()[to_size(step.layer) - 1]))
          add_frame(TaskOp::close, LayerMemory::state);
        return;
      case Pass::backward_input:
      case Pass::backward:
        if (recomputed && fused) add_frame(TaskOp::open, LayerMemory::recomputed, step.layer);
        if (recomputed) add_of_layer(TaskOp::recompute, read, left());
        if (frames) add_frame(TaskOp::open, LayerMemory::gradients, step.layer);
        add_of_layer(step.pass == Pass::backward ? TaskOp::backward : TaskOp::backward_input,
                     read | set_of(Region::output_gradient), left() | set_of(Region::input_gradient));
        if (step.pass == Pass::backward_input && (!fused || does(layer, Pass::backward_weight))) return;
        break;
      case Pass::backward_weight:
        add_of_layer(TaskOp::backward_weight, read | set_of(Region::output_gradient) | left(), 0);
    }
    if (frames) add_frame(TaskOp::close, LayerMemory::gradients);
    if (recomputed && fused) add_frame(TaskOp::close, LayerMemory::recomputed);
  }

  Regions left() const { return action_.op == Op::backward ? 0u : set_of(Region::left); }
  // What a forward pass leaves on an edge of the chunk.
  Regions written_edge(int l) const {
    const StageLayer& layer = layers()[to_size(l)];
    const bool ends = to_size(l) + 1 == layers().size();
    if (ends && !content().head) return set_of(Region::output);
    return layer.kind == LayerKind::embedding ? set_of(Region::input) : 0u;
  }

  // ---- edges: where the states that a transfer or copy moves, or their gradients, come from, and get to

  void move() {
    const bool forward = is_forward_transfer(action_.op);
    const Regions left = set_of(forward ? Region::output : Region::input_gradient);
    const Regions reached = set_of(forward ? Region::input : Region::output_gradient);
    if (action_.op == Op::copy_forward || action_.op == Op::copy_backward) {
      const int stage = schedule_.stage_at(share_.pp_rank, action_.chunk);
      add(TaskOp::local_copy, left, reached).buffer = schedule_.places[to_size(stage + (forward ? 1 : -1))].chunk;
    } else if (is_group(action_.op)) {
      add(TaskOp::transfer);
    } else {
      is_send(action_.op) ? add(TaskOp::transfer, left) : add(TaskOp::transfer, 0, reached);
    }
  }

  const RankShare& share_;
  const std::vector<Action>& list_;
  const Schedule& schedule_;
  bool training_, recompute_;
  Action action_;  // at hand
  int track_ = -1;
  std::vector<Task> tasks_;
  std::vector<Action> readers_;         // actions that read parameters
  std::size_t reader_ = 0;              // behind the last one written
  std::array<GatherPool, 2> gathered_;  // of forward passes, or of all; of backward passes, where they run beside these
  std::vector<PoolSize> gradients_;     // by class of pools
  std::vector<int> cleared_;            // by unit, the buffer that it adds to
  std::array<int, pool_classes> next_{};
  // By chunk and operation.
  std::vector<std::array<std::optional<std::vector<Step>>, to_size(op_count)>> steps_;
};

}  // namespace

std::vector<Task> step_tasks(const RankShare& share, const Schedule& schedule, Recompute recompute) {
  require(schedule.lowered, "tasks are those of a lowered schedule");
  return Writer(share, schedule, true, recompute != Recompute::none).write();
}

std::vector<Task> evaluation_tasks(const RankShare& share, const Schedule& schedule) {
  const Schedule forward = lower(forward_only(schedule));
  return Writer(share, forward, false, false).write();
}

}  // namespace forge

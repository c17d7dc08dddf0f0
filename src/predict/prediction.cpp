#include "predict/prediction.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/to_size.hpp"
#include "model/flops.hpp"
#include "nn/dispatch.plan.hpp"
#include "predict/step_cost.hpp"

namespace forge {

namespace {

SimulatedMachine simulated(const Machine& machine, const RunSetup& setup) {
  SimulatedMachine m;
  const int ranks = setup.mesh.world();
  // The rates of other programs' products are fitted to steps whose collectives ran behind them.
  if (machine.program.is_forge()) m.overlap = machine.overlap_speed;
  if (machine.cores_per_node == 0) return m;
  const int nodes = (ranks + machine.ranks_per_node - 1) / machine.ranks_per_node;
  m.cores = static_cast<double>(machine.cores_per_node) * nodes;
  m.per_stream = static_cast<double>(ranks / setup.mesh.pp);
  m.host_computes = true;
  m.shares_links = false;  // collectives are copies by the cores
  return m;
}

// Where a stream's time went on one pipeline rank. Behind its last span it waits for the stream `behind_last`.
void account(Prediction& p, const std::vector<Span>& spans, const std::vector<TaskCost>& costs, Lane behind_last) {
  double last = 0;
  std::vector<char> counted(costs.size());  // a track's task has several spans
  std::vector<std::pair<double, double>> computing;
  for (const Span& span : spans) {
    if (span.lane != Lane::compute) {
      p.behind[to_size(span.lane)] += span.end - span.start;
      continue;
    }
    p.slowed += span.slowed;
    if (span.task >= 0 && !std::exchange(counted[to_size(span.task)], 1))
      for (std::size_t i = 0; i < p.part.size(); ++i) p.part[i] += costs[to_size(span.task)].seconds[i];
    p.waited[to_size(span.waited_for)] += span.waited;
    computing.emplace_back(span.start, span.end);
    last = std::max(last, span.end);
  }
  p.waited[to_size(behind_last)] += p.seconds - last;
  for (const Span& span : spans) {
    if (span.lane == Lane::compute) continue;
    auto at = std::lower_bound(computing.begin(), computing.end(), std::pair{span.start, span.start},
                               [](const auto& a, const auto& b) { return a.second < b.second; });
    for (; at != computing.end() && at->first < span.end; ++at)
      p.hidden += std::max(0.0, std::min(span.end, at->second) - std::max(span.start, at->first));
  }
}

// Takes the collectives in the stream of exchanges out of the cost of a track's task.
void leave_out_exchanges(TaskCost& cost) {
  if (!cost.wires) return;
  constexpr CostPart exchanged[] = {CostPart::tp, CostPart::ep, CostPart::cp};
  double kept = 0, all = 0;
  for (const Wire& wire : *cost.wires)
    if (wire.computed > 0) kept += wire.latency + wire.seconds - wire.computed;
  for (const CostPart part : exchanged) all += cost.of(part);
  for (const CostPart part : exchanged) cost.of(part) *= all > 0 ? kept / all : 0;
}

// What a rank sends and receives in a step.
LinkSeconds wire_seconds(const std::vector<Instruction>& program) {
  LinkSeconds sum{};
  for (const Instruction& i : program)
    if (i.wires)
      for (const Wire& wire : *i.wires)
        for (std::size_t l = 0; l < sum.size(); ++l) sum[l] += wire.links[l];
  return sum;
}

void note_experts(Prediction& p, const BufferContext& context, double imbalance) {
  BufferContext busiest = context;
  busiest.expert_load = imbalance;
  p.expert_load = load_of_busiest(busiest);
  p.expert_rounds = expected_rounds(busiest);
}

// The computation of a task takes the measured time, its parts as the machine has them.
void set_measured(TaskCost& cost, double seconds) {
  constexpr CostPart computed[] = {CostPart::products, CostPart::attention, CostPart::rows, CostPart::optimizer};
  double sum = 0;
  for (const CostPart part : computed) sum += cost.of(part);
  const double factor = sum > 0 ? seconds / sum : 0;
  for (const CostPart part : computed) cost.of(part) *= factor;
  if (sum == 0) cost.of(CostPart::rows) = seconds;
  if (!cost.wires) return;
  Wires wires = *cost.wires;
  for (Wire& wire : wires) {
    wire.before *= factor;
    wire.seconds += (factor - 1) * wire.computed;
    wire.computed *= factor;
  }
  cost.wires = std::make_shared<const Wires>(std::move(wires));
}

Prediction predict_at_clock(const Machine& machine, const RunSetup& setup,
                            const std::vector<const MeasuredTasks*>& measured) {
  StepCost planned(machine, setup);
  const CostOf cost = [&](const RankShare& share, const Task& task) {
    TaskCost of_task = planned(share, task);
    if (measured.empty() || task.op == TaskOp::end_pair) return of_task;  // a pair is what its passes take alone
    const MeasuredTasks& known = *measured.at(to_size(share.pp_rank));
    const auto found = known.find({std::string(name_of(task.op)), subject_of(task, share, setup.spec)});
    if (found != known.end()) set_measured(of_task, found->second);
    return of_task;
  };
  const StreamUse use{machine.program.gradients_behind, machine.program.shards_at_once, machine.program.transfer};
  Prediction p;
  std::vector<std::vector<Instruction>> programs;
  std::vector<RankShare> shares;
  const int ranks = setup.mesh.world() / setup.mesh.pp;
  double flops = 0;  // of a rank of each stage
  for (int stage = 0; stage < setup.mesh.pp; ++stage) {
    shares.push_back(rank_share(setup.model_share(), stage * ranks));
    const RankShare& share = shares.back();
    p.tasks.push_back(step_tasks(share, setup.schedule, setup.buffers.recompute));
    for (const Task& task : update_tasks(share, setup.spec.options.router_bias)) p.tasks.back().push_back(task);
    for (const Task& task : p.tasks.back()) flops += cost(share, task).flops;
    programs.push_back(step_program(share, p.tasks.back(), setup.schedule, setup.mesh.world(), cost, use));
    const LinkSeconds wire = wire_seconds(programs.back());
    for (std::size_t l = 0; l < wire.size(); ++l) p.wire[l] = std::max(p.wire[l], wire[l]);
  }
  Simulated done = simulate(programs, simulated(machine, setup));
  p.seconds = done.seconds;
  p.low = p.seconds * (1 - machine.uncertainty);
  p.high = p.seconds * (1 + machine.uncertainty);
  p.stage = static_cast<int>(std::max_element(done.busy.begin(), done.busy.end()) - done.busy.begin());
  std::vector<TaskCost> costs;
  const RankShare& busiest = shares[to_size(p.stage)];
  for (const Task& task : p.tasks[to_size(p.stage)]) {
    costs.push_back(cost(busiest, costed_task(busiest, task, use)));
    if (task.track >= 0) leave_out_exchanges(costs.back());
  }
  account(p, done.ranks[to_size(p.stage)], costs, done.ranks.size() > 1 ? Lane::transfers : Lane::compute);
  p.spans = std::move(done.ranks);
  const auto world = static_cast<double>(setup.mesh.world());
  const auto tokens = static_cast<double>(setup.tokens_per_step());
  if (setup.deck.model.experts > 0) note_experts(p, setup.buffers, machine.imbalance);
  p.tokens_per_second = tokens / p.seconds / world;
  const double useful = tokens * training_flops_per_token(setup.spec, setup.units, setup.deck.train.sequence_tokens);
  const double peak = machine.peak(setup.buffers.precision.compute) * world * p.seconds;
  p.mfu = useful / peak;
  p.hfu = flops * ranks / peak;
  return p;
}

}  // namespace

// The fitted rates of other programs, and measured times, have the clock of their steps.
Prediction predict(const Machine& machine, const RunSetup& setup, const std::vector<const MeasuredTasks*>& measured) {
  Prediction p = predict_at_clock(machine, setup, measured);
  Machine limited = machine;
  limited.clock = machine.program.is_forge() && measured.empty() ? clock_at(machine, p.hfu) : 1;
  if (limited.clock < 1) p = predict_at_clock(limited, setup, measured);
  p.clock = limited.clock;
  return p;
}

}  // namespace forge

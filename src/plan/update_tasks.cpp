#include "core/to_size.hpp"
#include "plan/tasks.hpp"

// Tasks of the update, and gathers of whole units.

namespace forge {

std::vector<Task> gather_tasks(const RankShare& share) {
  std::vector<Task> tasks;
  for (std::size_t u = 0; u < share.units.size(); ++u) {
    const Zero& zero = share.units[u].zero;
    if (zero.gathers() && zero.keeps_whole()) tasks.push_back({TaskOp::gather, {}, -1, u});
  }
  return tasks;
}

namespace {

// The optimizer's rule.
std::vector<Task> rule_tasks(const RankShare& share) {
  std::vector<Task> tasks;
  for (std::size_t u = 0; u < share.factored.units.size(); ++u) tasks.push_back({TaskOp::update_factored, {}, -1, u});
  if (!tasks.empty()) return tasks;
  const int rounds = static_cast<int>(share.matrices.rounds.size()), buffers = share.matrices.buffers;
  const auto add = [&](TaskOp op, int round) {
    if (round < 0 || round >= rounds) return;
    tasks.push_back({op, {}});
    tasks.back().round = round;
    tasks.back().buffer = round % buffers;
  };
  const int ahead = buffers > 1;  // a gather runs one round before its computation, the return one round behind it
  if (ahead) add(TaskOp::gather_matrices, 0);
  tasks.push_back({TaskOp::update, {}});
  for (int r = 0; r < rounds + ahead; ++r) {
    add(TaskOp::gather_matrices, r + ahead);
    add(TaskOp::compute_matrices, r);
    if (ahead) add(TaskOp::return_matrices, r);
    add(TaskOp::update_matrices, r - ahead);
  }
  return tasks;
}

}  // namespace

std::vector<Task> optimizer_tasks(const RankShare& share) {
  std::vector<Task> tasks = rule_tasks(share);
  if (share.clips_heads) tasks.push_back({TaskOp::clip_heads, {}});
  return tasks;
}

std::vector<Task> update_tasks(const RankShare& share, bool router_biases) {
  std::vector<Task> tasks{{TaskOp::read, {}}};
  if (router_biases) tasks.push_back({TaskOp::update_biases, {}});
  for (const Task& task : optimizer_tasks(share)) tasks.push_back(task);
  if (share.reports_norms) tasks.push_back({TaskOp::unit_norms, {}});
  for (const Task& gather : gather_tasks(share))
    if (share.units[gather.unit].zero.stage < 3 && !share.units[gather.unit].frozen) tasks.push_back(gather);
  if (share.coded.amaxes() > 0) tasks.push_back({TaskOp::weight_amaxes, {}});
  return tasks;
}

}  // namespace forge

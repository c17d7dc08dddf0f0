#include "plan/slots.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace forge {

namespace {

// f(position, region, chunk, microbatch) for all that tasks read or write.
template <class F>
void for_uses(const std::vector<Task>& tasks, F f) {
  for (int i = 0; i < static_cast<int>(tasks.size()); ++i) {
    const Task& task = tasks[to_size(i)];
    const int m = task.action.microbatch, target = task.op == TaskOp::local_copy ? task.buffer : task.action.chunk;
    for (std::size_t r = 0; r < region_count; ++r) {
      const Regions region = set_of(static_cast<Region>(r));
      if (task.reads & region) f(i, r, task.action.chunk, m);
      if (task.writes & region) f(i, r, target, m);
    }
  }
}

}  // namespace

std::vector<Lifetime> lifetimes_of(const std::vector<Task>& tasks) {
  std::map<std::tuple<std::size_t, int, int>, std::size_t> places;
  std::vector<Lifetime> list;
  for_uses(tasks, [&](int i, std::size_t r, int chunk, int m) {
    const auto [at, is_new] = places.try_emplace({r, chunk, m}, list.size());
    if (is_new) list.push_back({static_cast<Region>(r), chunk, m, i, i});
    list[at->second].last = i;
  });
  return list;
}

SlotTables assign_slots(const std::vector<Task>& tasks, int chunks, int microbatches) {
  SlotTables tables;
  tables.fill({microbatches, std::vector<int>(to_size(chunks)), std::vector<int>(to_size(chunks * microbatches), -1)});
  std::array<std::vector<int>, region_count> last;
  last.fill(std::vector<int>(to_size(chunks * microbatches)));
  for_uses(tasks, [&](int i, std::size_t r, int chunk, int m) { last[r][to_size(chunk * microbatches + m)] = i; });
  // By region, chunk and slot, the position after which the slot is free.
  std::array<std::vector<std::vector<int>>, region_count> free_from;
  free_from.fill(std::vector<std::vector<int>>(to_size(chunks)));
  for_uses(tasks, [&](int i, std::size_t r, int chunk, int m) {
    const std::size_t at = to_size(chunk * microbatches + m);
    if (tables[r].slots[at] >= 0) return;
    auto& pool = free_from[r][to_size(chunk)];
    auto slot = std::find_if(pool.begin(), pool.end(), [&](int position) { return position < i; });
    if (slot == pool.end()) slot = pool.insert(pool.end(), -1);
    *slot = last[r][at];
    tables[r].slots[at] = static_cast<int>(slot - pool.begin());
    tables[r].counts[to_size(chunk)] = static_cast<int>(pool.size());
  });
  return tables;
}

RunTasks run_tasks(const RankShare& share, const Schedule& schedule, const std::vector<Schedule>& smaller,
                   Recompute recompute, bool training) {
  if (!training) {
    const std::vector<Task> tasks = evaluation_tasks(share, schedule);
    return {{tasks}, {assign_slots(tasks, schedule.chunks_per_rank, 1)}};
  }
  RunTasks run;
  const auto add = [&](const Schedule& s) {
    run.tasks.push_back(step_tasks(share, s, recompute));
    run.tables.push_back(assign_slots(run.tasks.back(), s.chunks_per_rank, s.microbatches));
  };
  add(schedule);
  for (const Schedule& s : smaller) add(s);
  for (std::size_t r = 0; r < region_count; ++r)
    for (std::size_t chunk = 0; chunk < share.chunks.size(); ++chunk) {
      int most = 0;
      for (const SlotTables& tables : run.tables) most = std::max(most, tables[r].counts[chunk]);
      for (SlotTables& tables : run.tables) tables[r].counts[chunk] = most;
    }
  return run;
}

std::size_t frame_bytes(const BufferContext& c, const RankShare& share, const Task& task) {
  const StageLayer layer = task.layer < 0 ? StageLayer{} : layer_of(task, share);
  return bytes_in(task.frame, c, share.chunks[to_size(task.action.chunk)], layer);
}

}  // namespace forge

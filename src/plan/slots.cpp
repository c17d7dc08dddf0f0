#include "plan/slots.hpp"

#include <algorithm>

namespace forge {

namespace {

struct Span {
  int begin = -1, end = -1;  // positions in the list

  void reach(int position) {
    if (begin < 0) begin = position;
    end = position;
  }
};

SlotTable table_of(const std::vector<Span>& spans, int chunks, int microbatches) {
  SlotTable table{microbatches, std::vector<int>(to_size(chunks), 0), std::vector<int>(spans.size(), -1)};
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (spans[i].begin >= 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return spans[a].begin < spans[b].begin; });
  // By chunk and slot, the position after which the slot is free: the count is the largest number of overlapping
  // lifetimes.
  std::vector<std::vector<int>> free_from(table.counts.size());
  for (const std::size_t i : order) {
    const Span& span = spans[i];
    const std::size_t chunk = i / to_size(microbatches);
    auto& pool = free_from[chunk];
    auto slot = std::find_if(pool.begin(), pool.end(), [&](int position) { return position < span.begin; });
    if (slot == pool.end()) slot = pool.insert(pool.end(), -1);
    *slot = span.end;
    table.slots[i] = static_cast<int>(slot - pool.begin());
    table.counts[chunk] = static_cast<int>(pool.size());
  }
  return table;
}

}  // namespace

SlotTables assign_slots(const std::vector<Task>& tasks, int chunks, int microbatches) {
  std::array<std::vector<Span>, region_count> spans;
  spans.fill(std::vector<Span>(to_size(chunks * microbatches)));
  for (int i = 0; i < static_cast<int>(tasks.size()); ++i) {
    const Task& task = tasks[to_size(i)];
    const auto reach = [&](Regions regions, int chunk) {
      const int at = chunk * microbatches + task.action.microbatch;
      for (std::size_t r = 0; r < spans.size(); ++r)
        if (regions & set_of(static_cast<Region>(r))) spans[r][to_size(at)].reach(i);
    };
    reach(task.reads, task.action.chunk);
    reach(task.writes, task.op == TaskOp::local_copy ? task.place : task.action.chunk);
  }
  SlotTables tables;
  for (std::size_t r = 0; r < spans.size(); ++r) tables[r] = table_of(spans[r], chunks, microbatches);
  return tables;
}

void share_slots(std::vector<SlotTables>& tables) {
  SlotTables most = tables.front();
  for (const SlotTables& list : tables)
    for (std::size_t r = 0; r < list.size(); ++r)
      for (std::size_t c = 0; c < list[r].counts.size(); ++c)
        most[r].counts[c] = std::max(most[r].counts[c], list[r].counts[c]);
  for (SlotTables& list : tables)
    for (std::size_t r = 0; r < list.size(); ++r) list[r].counts = most[r].counts;
}

StepSlots step_slots(const RankShare& share, const Schedule& schedule, const std::vector<Schedule>& smaller,
                     Recompute recompute) {
  StepSlots steps;
  const auto add = [&](const Schedule& s) {
    steps.tasks.push_back(step_tasks(share, s, recompute));
    steps.tables.push_back(assign_slots(steps.tasks.back(), s.chunks_per_rank, s.microbatches));
  };
  add(schedule);
  for (const Schedule& s : smaller) add(s);
  share_slots(steps.tables);
  return steps;
}

std::size_t frame_bytes(const BufferContext& c, const RankShare& share, const Task& task) {
  const StageLayer layer = task.layer < 0 ? StageLayer{} : layer_of(task, share);
  return bytes_in(task.frame, c, share.chunks[to_size(task.action.chunk)], layer);
}

}  // namespace forge

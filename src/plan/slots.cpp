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

std::size_t frame_bytes(const BufferContext& c, const RankShare& share, const Task& task) {
  if (task.op == TaskOp::open_state) return state_bytes(c);
  if (task.op == TaskOp::open_stream) return stream_bytes(c);
  const StageLayer& layer = share.layers[to_size(task.action.chunk)][to_size(task.layer)];
  return task.op == TaskOp::open_recomputed ? recomputed_bytes(c, layer) : gradient_bytes(c, layer);
}

}  // namespace forge

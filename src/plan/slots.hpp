#pragma once

#include <array>
#include <vector>

#include "core/to_size.hpp"
#include "plan/tasks.hpp"

namespace forge {

// The slot of each microbatch in a region. The executor and the memory planner share it.
struct SlotTable {
  int microbatches = 0;
  std::vector<int> counts;  // slots by chunk
  std::vector<int> slots;   // by chunk * microbatches + microbatch; -1: the region never exists on this rank

  int at(int chunk, int microbatch) const { return slots[to_size(chunk * microbatches + microbatch)]; }
};
using SlotTables = std::array<SlotTable, region_count>;

// The span from the first to the last of a rank's tasks that read or write a region of (chunk, microbatch).
struct Lifetime {
  Region region{};
  int chunk = 0, microbatch = 0;
  int first = 0, last = 0;  // of the list
};
std::vector<Lifetime> lifetimes_of(const std::vector<Task>& tasks);

// The slots of a rank's tasks: a region of (chunk, microbatch) lives from the first task that reads or writes it to the
// last one; as few slots as the lifetimes allow, the lowest free one first. Every lifetime in a slot has ended before
// the next one begins, in the order of the list.
SlotTables assign_slots(const std::vector<Task>& tasks, int chunks, int microbatches);
// The lists of tasks of a rank's run, which take turns: training steps by the schedule of the largest batch, then by
// the schedules of smaller ones; or an evaluation's. Their tables have the same counts, the largest of any.
struct RunTasks {
  std::vector<std::vector<Task>> tasks;
  std::vector<SlotTables> tables;
};
RunTasks run_tasks(const RankShare& share, const Schedule& schedule, const std::vector<Schedule>& smaller,
                   Recompute recompute, bool training);

// The workspace of a frame, from the task that opens it until its close.
std::size_t frame_bytes(const BufferContext& context, const RankShare& share, const Task& task);

}  // namespace forge

#include "plan/memory.hpp"

#include "plan/frames.hpp"
#include "plan/slots.hpp"

namespace forge {

namespace {

// What one microbatch of each chunk takes, times the slots that its lifetimes need.
void add_slots(MemoryPlan& plan, const BufferContext& c, const RankShare& share, const SlotTables& slots,
               bool training) {
  for (std::size_t r = 0; r < slots.size(); ++r)
    for (std::size_t i = 0; i < share.chunks.size(); ++i)
      for (const SlotPart& part : slot_parts(static_cast<Region>(r), c, share.chunks[i], share.layers[i], training))
        plan.of(part.category) += part.bytes * to_size(slots[r].counts[i]);
}

}  // namespace

MemoryPlan plan_memory(const BufferContext& c, const RankShare& share, const Schedule& schedule,
                       std::size_t library_bytes, RunKind kind, const std::vector<Schedule>& smaller) {
  MemoryPlan plan = resident_memory(c, share, kind, library_bytes);
  const bool training = kind != RunKind::evaluation;
  const RunTasks run = run_tasks(share, schedule, smaller, c.recompute, training);
  add_slots(plan, c, share, run.tables.front(), training);
  Frames frames(c, share);
  for (const std::vector<Task>& tasks : run.tasks)
    for (const Task& task : tasks) frames.run(task);
  if (kind == RunKind::training)
    for (const Task& task : optimizer_tasks(share)) frames.run(task);
  plan.of(Category::workspace) += frames.most;
  plan.peak = frames.most > 0 ? phase_of(frames.task, share) : "start";
  return plan;
}

}  // namespace forge

#include "plan/memory.hpp"

#include "plan/pass_memo.hpp"
#include "plan/slots.hpp"

namespace forge {

namespace {

// The frames of a list of tasks, at their fullest.
class Frames {
 public:
  Frames(const BufferContext& c, const RankShare& share) : c_(c), share_(share) {}

  void run(const Task& task) {
    if (const LayerPass p = pass_of(task, share_); p.layer)
      return reach(task, now_ + scratch_.of(p, [&] { return scratch_bytes(c_, *p.layer, p.pass, p.recompute); }));
    if (task.op == TaskOp::open) now_ += open_[to_size(task.frame)] = frame_bytes(c_, share_, task);
    if (task.op == TaskOp::close) now_ -= open_[to_size(task.frame)];
    if (task.op == TaskOp::compute_matrices) reach(task, matrix_bytes());
    if (task.op == TaskOp::update_factored)
      reach(task, counted_bytes<FactoredBuffers>(c_, share_.factored.units[task.unit]));
  }

  std::size_t most = 0;
  Task task{};  // the first that reaches it, where anything is taken at all

 private:
  void reach(const Task& t, std::size_t bytes) {
    if (bytes <= most) return;
    most = bytes;
    task = t;
  }
  std::size_t matrix_bytes() const {
    return with_compute_type(
        c_.precision, [&](auto type) { return counted_bytes<MatrixBuffers<decltype(type)>>(c_, share_.matrices); });
  }

  const BufferContext& c_;
  const RankShare& share_;
  PassMemo<std::size_t> scratch_;
  std::array<std::size_t, layer_memory_count> open_{};
  std::size_t now_ = 0;
};

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

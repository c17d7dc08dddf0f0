#include "plan/memory.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "layout/stage_buffers.hpp"
#include "nn/run.plan.hpp"
#include "plan/operations.hpp"
#include "plan/slots.hpp"

namespace forge {

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const auto b : bytes) sum += b;
  return sum;
}

namespace {

// The frames of a list of tasks, at their fullest.
class Frames {
 public:
  Frames(const BufferContext& c, const RankShare& share) : c_(c), share_(share) {}

  void run(const Task& task) {
    if (const LayerPass p = pass_of(task, share_); p.layer) return scratch(task, p);
    switch (task.op) {
      case TaskOp::open:
        now_ += open_[to_size(task.frame)] = frame_bytes(c_, share_, task);
        return;
      case TaskOp::close:
        now_ -= open_[to_size(task.frame)];
        return;
      case TaskOp::compute_matrices:
        return reach(task, matrix_bytes());
      case TaskOp::update_factored:
        return reach(task, counted_bytes<FactoredBuffers>(c_, share_.factored.units[task.unit]));
      default:
        return;
    }
  }

  std::size_t most = 0;
  Task task{};  // the first that reaches it, where anything is taken at all

 private:
  void scratch(const Task& t, const LayerPass& p) { reach(t, now_ + scratch_bytes(c_, *p.layer, p.pass, p.recompute)); }
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
  std::array<std::size_t, kept_count> open_{};
  std::size_t now_ = 0;
};

void add_parameters(MemoryPlan& plan, const BufferContext& c, const RankShare& share, RunKind kind) {
  const StorageKind stored = storage_kind(kind, c.optimizer);
  auto add = [&](const UnitBufferSpec& buffer) { plan.of(buffer.category) += align_up(buffer.bytes()); };
  for (const LocalUnit& unit : share.units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, c.precision, stored)) add(buffer);
  for (int k = 0; k < pool_classes; ++k) {
    const PoolSize gradients = stored.gradients ? gradient_pool(share.units, static_cast<PoolClass>(k)) : PoolSize{};
    const PoolSize parameters = parameter_pool(share.units, static_cast<PoolClass>(k));
    auto bytes = [](const PoolSize& size, DType type) {
      return to_size(size.buffers) * align_up(to_size(size.elements) * size_of(type));
    };
    plan.of(Category::gradients) += bytes(gradients, c.precision.accumulate);
    plan.of(Category::parameters) += bytes(parameters, c.precision.compute);
  }
  plan.of(Category::parameters) += with_compute_type(
      c.precision, [&](auto type) { return counted_bytes<CodedBuffers<decltype(type)>>(c, share.coded); });
  if (keeps_lines(stored.optimizer))
    plan.of(Category::optimizer) += with_compute_type(c.precision, [&](auto type) {
      const std::int64_t count = share.line_moments();
      return counted_bytes<LineMoments<acc_t<decltype(type)>>>(c, count);
    });
}

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
  MemoryPlan plan;
  add_parameters(plan, c, share, kind);
  plan.of(Category::data) =
      with_compute_type(c.precision, [&](auto type) { return counted_bytes<RunBuffers<decltype(type)>>(c); });
  plan.of(Category::library) = align_up(library_bytes);
  const bool training = kind != RunKind::evaluation;
  StepSlots steps;
  if (training) {
    steps = step_slots(share, schedule, smaller, c.recompute);
  } else {
    steps.tasks.push_back(evaluation_tasks(share, schedule));
    steps.tables.push_back(assign_slots(steps.tasks.front(), schedule.chunks_per_rank, 1));
  }
  add_slots(plan, c, share, steps.tables.front(), training);
  Frames frames(c, share);
  for (const std::vector<Task>& tasks : steps.tasks)
    for (const Task& task : tasks) frames.run(task);
  if (kind == RunKind::training)
    for (const Task& task : optimizer_tasks(share)) frames.run(task);
  Fp8Sizes rounded = fp8_sizes(c, share);
  plan.of(Category::workspace) = frames.most + with_compute_type(c.precision, [&](auto type) {
                                   return counted_bytes<Fp8Buffers<decltype(type)>>(c, rounded);
                                 });
  plan.peak = frames.most > 0 ? phase_of(frames.task, share) : "start";
  return plan;
}

}  // namespace forge

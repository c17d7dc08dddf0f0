#include "plan/memory_plan.hpp"

#include "core/bytes.hpp"
#include "nn/run.plan.hpp"
#include "plan/task_segments.hpp"

namespace forge {

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const auto b : bytes) sum += b;
  return sum;
}

namespace {

void add_units(MemoryPlan& plan, const BufferContext& c, const RankShare& share, const StorageKind& stored) {
  for (const LocalUnit& unit : share.units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, c.precision, stored))
      plan.of(buffer.category) += align_up(buffer.bytes());
  for (int k = 0; k < pool_classes; ++k) {
    const PoolSize gradients = stored.gradients ? gradient_pool(share.units, static_cast<PoolClass>(k)) : PoolSize{};
    const PoolSize parameters = parameter_pool(share.units, static_cast<PoolClass>(k));
    const auto bytes = [](const PoolSize& size, DType type) {
      return to_size(size.buffers) * align_up(to_size(size.elements) * size_of(type));
    };
    plan.of(Category::gradients) += bytes(gradients, c.precision.accumulate);
    plan.of(Category::parameters) += bytes(parameters, c.precision.compute);
  }
  if (stored.gradients)
    plan.of(Category::gradients) +=
        2 * align_up(to_size(exchanged_gradients(share.units)) * size_of(c.precision.compute));
}

}  // namespace

MemoryPlan resident_memory(const BufferContext& c, const RankShare& share, RunKind kind, std::size_t library_bytes) {
  MemoryPlan plan;
  const StorageKind stored = storage_kind(kind, c.optimizer);
  add_units(plan, c, share, stored);
  plan.of(Category::library) = align_up(library_bytes);
  with_compute_type(c.precision, [&](auto type) {
    using T = decltype(type);
    const std::int64_t lines = share.line_moments();
    RoundingSizes rounded = rounding_sizes(c, share);
    plan.of(Category::parameters) += counted_bytes<CodedBuffers<T>>(c, share.coded);
    if (keeps_of_matrices(stored.optimizer))
      plan.of(Category::optimizer) += counted_bytes<LineMoments<acc_t<T>>>(c, lines);
    const KeptShare kept = share.kept(c.spec);
    plan.of(Category::data) += counted_bytes<RunBuffers<T>>(c) + counted_bytes<ScoreBuffers>(c, kept);
    plan.of(Category::activations) += counted_bytes<GenerationBuffers<T>>(c, kept);
    plan.of(Category::workspace) +=
        to_size(scratch_tracks(c, stored.gradients)) *
        (counted_bytes<RoundingBuffers<T>>(c, rounded) + counted_bytes<DroppedRows<T>>(c, stored.gradients));
  });
  return plan;
}

}  // namespace forge

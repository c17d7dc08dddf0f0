#include "plan/memory.hpp"

#include <algorithm>

#include "core/bytes.hpp"

namespace forge {

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const auto b : bytes) sum += b;
  return sum;
}

namespace {

struct Phase {
  const char* name;
  std::size_t bytes;
};

// Frames of the phases of a step; nested frames add, alternatives take the largest.
std::vector<Phase> phases_of(const BufferContext& c, RunKind kind) {
  auto bytes = [&c](auto list) { return aligned_bytes(list(c)); };
  const std::size_t rebuilt = bytes(rebuilt_of_block), forward = bytes(scratch_forward_block);
  std::vector<Phase> phases{{"forward of a block", rebuilt + forward}, {"output head", bytes(scratch_head_forward)}};
  if (kind == RunKind::evaluation) return phases;
  const std::size_t stream = bytes(gradient_stream);
  const std::size_t rebuilding = c.recompute == Recompute::full ? forward : 0;
  const std::size_t scratch =
      std::max({bytes(scratch_backward_mlp), bytes(scratch_backward_attention), bytes(scratch_backward_weight)});
  phases.push_back(
      {"backward of a block", stream + rebuilt + std::max(rebuilding, bytes(gradients_of_block) + scratch)});
  phases.push_back({"backward of the head", stream + bytes(scratch_head_backward)});
  return phases;
}

}  // namespace

MemoryPlan plan_memory(const BufferContext& c, const std::vector<Unit>& units, int slots, std::size_t library_bytes,
                       RunKind kind) {
  MemoryPlan plan;
  for (const auto& unit : units) {
    const auto n = static_cast<std::size_t>(unit.elements);
    plan.of(Category::parameters) += align_up(n * size_of(c.precision.storage));
    if (c.precision.has_compute_copy()) plan.of(Category::parameters) += align_up(n * size_of(c.precision.compute));
    if (kind != RunKind::evaluation) plan.of(Category::gradients) += align_up(n * size_of(c.precision.accumulate));
    if (kind == RunKind::training) plan.of(Category::optimizer) += 2 * align_up(n * size_of(c.precision.moment));
  }
  const auto in_flight = static_cast<std::size_t>(slots);
  plan.of(Category::data) = aligned_bytes(run_buffers(c)) + in_flight * aligned_bytes(batch_buffers(c));
  plan.of(Category::activations) =
      in_flight *
      (static_cast<std::size_t>(c.spec.L()) * aligned_bytes(saved_of_block(c)) + aligned_bytes(saved_of_head(c)));
  plan.of(Category::library) = align_up(library_bytes);
  const auto phases = phases_of(c, kind);
  const auto largest =
      std::max_element(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) { return a.bytes < b.bytes; });
  plan.of(Category::workspace) = largest->bytes;
  plan.peak = largest->name;
  return plan;
}

}  // namespace forge

#include "plan/memory.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "layout/chunk_buffers.hpp"
#include "model/context_buffers.hpp"
#include "model/mtp_buffers.hpp"
#include "schedule/slots.hpp"

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

// Frames of the phases of a step; nested frames add, alternatives take the largest. Only what the rank's chunks do.
class Phases {
 public:
  Phases(const BufferContext& c, const RankShare& share, const Schedule& schedule, RunKind kind)
      : c_(c), evaluates_(kind == RunKind::evaluation) {
    for (std::size_t i = 0; i < share.chunks.size(); ++i) add(share.chunks[i]);
    if (evaluates_) return;
    for (const Action& action : schedule.actions[static_cast<std::size_t>(share.pp_rank)])
      if (action.op == Op::backward || action.op == Op::backward_input || action.op == Op::backward_weight)
        add_backward(share.chunks[static_cast<std::size_t>(action.chunk)], action.op);
  }

  Phase largest() const {
    return *std::max_element(phases_.begin(), phases_.end(),
                             [](const Phase& a, const Phase& b) { return a.bytes < b.bytes; });
  }

 private:
  template <class List>
  std::size_t bytes(List list) const {
    return aligned_bytes(list(c_));
  }

  template <class List>
  std::size_t bytes(List list, std::int64_t layer) const {
    return aligned_bytes(list(c_, layer));
  }

  std::size_t forward_of_block(std::int64_t layer) const {
    return bytes(scratch_forward_block, layer) +
           std::max(bytes(scratch_forward_latents), bytes(scratch_context_forward));
  }

  void add(const StageContent& chunk) {
    if (chunk.embedding) phases_.push_back({"embedding", bytes(scratch_embedding)});
    for (int l = 0; l < chunk.layers; ++l) {
      const std::int64_t layer = chunk.layer(l);
      phases_.push_back({"forward of a block", bytes(rebuilt_of_block, layer) + forward_of_block(layer)});
    }
    // What the head reads and nobody else.
    const bool last_of_mtp = chunk.mtp_layers > 0 && !evaluates_;
    const std::size_t output = last_of_mtp || (chunk.final_norm() && chunk.mtp_layers == 0) ? bytes(head_output) : 0;
    if (chunk.head) phases_.push_back({"output head", bytes(scratch_head_forward) + output});
    if (chunk.mtp_layers == 0 || evaluates_) return;
    phases_.push_back({"multi-token input", std::max(bytes(scratch_embedding), bytes(rebuilt_of_mtp))});
    const std::int64_t layer = chunk.layer(chunk.layers);  // its depths are alike
    phases_.push_back({"multi-token block", bytes(rebuilt_of_block, layer) + forward_of_block(layer)});
  }

  // `stream`: of the chunk.
  void add_backward_of_mtp(const StageContent& chunk, Op op, std::size_t stream) {
    const bool whole = op == Op::backward;
    phases_.push_back({"backward of a multi-token block", stream + backward_of_block(chunk.layer(chunk.layers), op)});
    if (!computes_input_gradient(op)) return;
    phases_.push_back({"backward of a multi-token head", stream + bytes(scratch_head_backward)});
    phases_.push_back({"backward of a multi-token input", stream + (whole ? bytes(rebuilt_of_mtp) : 0) +
                                                              bytes(scratch_backward_mtp) + bytes(scratch_embedding)});
  }

  void add_backward(const StageContent& chunk, Op op) {
    const bool whole = op == Op::backward;
    const std::size_t stream = whole ? bytes(gradient_stream) : 0;
    phases_.push_back({"backward of a chunk", stream});
    for (int l = 0; l < chunk.layers; ++l)
      phases_.push_back({"backward of a block", stream + backward_of_block(chunk.layer(l), op)});
    if (chunk.mtp_layers > 0) add_backward_of_mtp(chunk, op, stream);
    if (chunk.final_norm() && computes_input_gradient(op))
      phases_.push_back({"backward of the final norm", stream + bytes(scratch_head_backward)});
    if (chunk.embedding && computes_weight_gradient(op))
      phases_.push_back({"backward of the embedding", stream + bytes(scratch_embedding)});
  }

  std::size_t backward_of_block(std::int64_t layer, Op op) const {
    const bool whole = op == Op::backward;
    const std::size_t kept = whole ? bytes(rebuilt_of_block, layer) : 0;
    const std::size_t left = whole ? bytes(gradients_of_block, layer) : 0;
    std::size_t frame = 0;
    if (computes_input_gradient(op))
      frame = std::max({c_.recompute == Recompute::full ? forward_of_block(layer) : 0,
                        left + bytes(scratch_backward_mlp, layer),
                        left + bytes(scratch_backward_attention) + bytes(scratch_context_backward)});
    if (computes_weight_gradient(op)) frame = std::max(frame, left + bytes(scratch_backward_weight, layer));
    return kept + frame;
  }

  const BufferContext& c_;
  bool evaluates_;
  std::vector<Phase> phases_{{"start", 0}};
};

// Bytes of slots: what one microbatch of each chunk takes, times the schedule's slots of that lifetime.
template <class BytesOf>
std::size_t slot_bytes(const Schedule& schedule, const RankShare& share, Lifetime lifetime, RunKind kind,
                       BytesOf bytes_of) {
  const bool evaluates = kind == RunKind::evaluation;
  const SlotTable table = evaluates ? SlotTable{} : assign_slots(schedule, share.pp_rank, lifetime);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < share.chunks.size(); ++i)
    sum += static_cast<std::size_t>(evaluates ? 1 : table.counts[i]) * bytes_of(share.chunks[i]);
  return sum;
}

void add_parameters(MemoryPlan& plan, const BufferContext& c, const RankShare& share, RunKind kind) {
  const StorageKind stored{kind != RunKind::evaluation, kind == RunKind::training};
  auto add = [&](const UnitBufferSpec& buffer) { plan.of(buffer.category) += align_up(buffer.bytes()); };
  for (const LocalUnit& unit : share.units)
    for (const UnitBufferSpec& buffer : unit_buffers(unit, c.precision, zero_of(share.zero, unit), stored)) add(buffer);
  for (int k = 0; k < pool_classes; ++k) {
    const PoolSize gradients = gradient_pool(share.units, static_cast<PoolClass>(k), share.zero, stored);
    const PoolSize parameters = parameter_pool(share.units, static_cast<PoolClass>(k), share.zero);
    auto bytes = [](const PoolSize& size, DType type) {
      return static_cast<std::size_t>(size.buffers) * align_up(static_cast<std::size_t>(size.elements) * size_of(type));
    };
    plan.of(Category::gradients) += bytes(gradients, c.precision.accumulate);
    plan.of(Category::parameters) += bytes(parameters, c.precision.compute);
  }
}

// What evaluation doesn't need is left out there.
std::size_t saved_bytes(const BufferContext& c, const StageContent& chunk, RunKind kind) {
  const int states = states_at_head(chunk, kind != RunKind::evaluation);
  std::size_t sum =
      aligned_bytes(chunk_norm_saved(c, chunk)) + static_cast<std::size_t>(states) * aligned_bytes(saved_of_state(c));
  for (int k = 0; k < chunk.mtp_layers && kind != RunKind::evaluation; ++k)
    sum += aligned_bytes(chunk_mtp_saved(c, chunk, k));
  for (int l = 0; l < chunk.layers; ++l) sum += aligned_bytes(chunk_block_saved(c, chunk, l));
  return sum;
}

std::size_t apart_bytes(const BufferContext& c, const StageContent& chunk) {
  std::size_t sum = aligned_bytes(chunk_embedding_apart(c, chunk));
  for (int l = 0; l < chunk.layers; ++l) sum += aligned_bytes(chunk_block_apart(c, chunk, l));
  for (int k = 0; k < chunk.mtp_layers; ++k) sum += aligned_bytes(chunk_mtp_apart(c, chunk, k));
  return sum;
}

}  // namespace

MemoryPlan plan_memory(const BufferContext& c, const RankShare& share, const Schedule& schedule,
                       std::size_t library_bytes, RunKind kind) {
  MemoryPlan plan;
  add_parameters(plan, c, share, kind);
  auto slots = [&](Lifetime lifetime, auto bytes_of) { return slot_bytes(schedule, share, lifetime, kind, bytes_of); };
  plan.of(Category::data) =
      aligned_bytes(run_buffers(c)) + slots(Lifetime::saved_for_weight, [&](const StageContent& chunk) {
        const int depths =
            kind == RunKind::evaluation ? 0 : chunk.mtp_layers + std::max(states_at_head(chunk, true) - 1, 0);
        return aligned_bytes(batch_buffers(c)) + static_cast<std::size_t>(depths) * aligned_bytes(batch_of_mtp(c));
      });
  std::size_t& activations = plan.of(Category::activations);
  activations =
      slots(Lifetime::saved_for_weight, [&](const StageContent& chunk) { return saved_bytes(c, chunk, kind); });
  const bool training = kind != RunKind::evaluation;
  const auto edge = [&](Lifetime lifetime, bool (*has)(const StageContent&), auto list) {
    activations += slots(
        lifetime, [&](const StageContent& chunk) { return has(chunk) ? aligned_bytes(list(chunk)) : std::size_t{0}; });
  };
  const auto always = [](const StageContent&) { return true; };
  edge(Lifetime::input, always, [&](const StageContent& chunk) { return chunk_input(c, chunk, training); });
  edge(Lifetime::output, has_output, [&](const StageContent& chunk) { return chunk_output(c, chunk, training); });
  if (training) {
    activations += slots(Lifetime::weight_inputs, [&](const StageContent& chunk) { return apart_bytes(c, chunk); });
    edge(Lifetime::output_gradient, has_output,
         [&](const StageContent& chunk) { return chunk_output_gradient(c, chunk); });
    edge(Lifetime::input_gradient, has_input_gradient,
         [&](const StageContent& chunk) { return chunk_input_gradient(c, chunk); });
  }
  plan.of(Category::library) = align_up(library_bytes);
  const Phase largest = Phases(c, share, schedule, kind).largest();
  plan.of(Category::workspace) = largest.bytes;
  plan.peak = largest.name;
  return plan;
}

}  // namespace forge

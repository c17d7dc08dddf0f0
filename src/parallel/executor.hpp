#pragma once

#include <functional>
#include <vector>

#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "parallel/gradient_sync.hpp"
#include "parallel/storage.hpp"
#include "parallel/timers.hpp"
#include "schedule/interpret.hpp"
#include "schedule/slots.hpp"

namespace forge {

// Puts the batch of a microbatch into a slot's buffers (model/buffers.hpp: batch_buffers).
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void load(Stream& stream, int microbatch, const BufferSet& slot) = 0;
};

// Carries out the actions of one rank's lowered schedule (schedule/interpret.hpp) on its part of the model. Slots hold
// what the microbatches in flight have saved.
template <class T>
class Executor {
 public:
  // `schedule` is lowered. Slots are allocated here, for the whole run.
  Executor(const Context<T>& context, const ParameterStorage<T>& storage, const Schedule& schedule, GradientSync* sync,
           PhaseTimers& timers);

  // One pass over the schedule: sums of loss, z and gradients over this rank's microbatches.
  void run_step(BatchSource& source, std::int64_t step, LossScale scale, View<double, 1> loss_sum,
                View<double, 1> z_sum);
  // Loss and z of one microbatch without gradients, in slot 0.
  void evaluate(BatchSource& source, int microbatch, View<double, 1> loss_sum, View<double, 1> z_sum);

  // What schedule/interpret.hpp calls.
  void forward(const Action& action);
  void backward(const Action& action);
  void recompute(const Action&) {}         // block by block inside backward(), where its buffers are shared
  void reduce_gradients(const Action&) {}  // unit by unit inside backward(): see GradientSync
  void wait_gradients(const Action& action);
  void backward_input(const Action& action) { refuse(action); }
  void backward_weight(const Action& action) { refuse(action); }
  void begin_group(const Action& action) { refuse(action); }
  void end_group(const Action& action) { refuse(action); }
  void post_send(const Action& action) { refuse(action); }
  void wait_send(const Action& action) { refuse(action); }
  void post_recv(const Action& action) { refuse(action); }
  void wait_recv(const Action& action) { refuse(action); }
  void hand_over(const Action& action) { refuse(action); }
  void gather_parameters(const Action& action) { refuse(action); }
  void wait_parameters(const Action& action) { refuse(action); }
  void release_parameters(const Action& action) { refuse(action); }

 private:
  struct Slot {
    std::vector<BufferSet> blocks;  // each with the batch's buffers
    BufferSet head;
  };
  // Where the step's results go.
  struct Step {
    BatchSource* source = nullptr;
    LossScale scale;
    View<double, 1> loss_sum, z_sum;
  };

  [[noreturn]] void refuse(const Action& action) const;
  void forward_layers(Slot& slot, BatchSource& source, int microbatch);
  void unit_done(std::size_t unit, int microbatch);
  std::size_t head_unit() const { return storage_.size() - 1; }

  Context<T> context_;
  const ParameterStorage<T>& storage_;
  const Schedule& schedule_;
  SlotTable table_;
  GradientSync* sync_;
  PhaseTimers& timers_;
  int last_backward_ = 0;  // the microbatch after whose W a unit's gradient is complete

  EmbeddingTensors<const T> embedding_;
  EmbeddingTensors<acc_t<T>> embedding_gradient_;
  std::vector<BlockTensors<const T>> blocks_;
  std::vector<BlockTensors<acc_t<T>>> block_gradients_;
  HeadTensors<const T> head_;
  HeadTensors<acc_t<T>> head_gradient_;
  std::vector<Slot> slots_;
  Step step_;
};

}  // namespace forge

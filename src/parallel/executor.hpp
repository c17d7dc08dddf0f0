#pragma once

#include <array>
#include <optional>
#include <vector>

#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "parallel/gradient_sync.hpp"
#include "parallel/parameter_gather.hpp"
#include "parallel/slots.hpp"
#include "parallel/storage.hpp"
#include "parallel/transfers.hpp"

namespace forge {

// Puts the batch of a microbatch into a slot's buffers (model/buffers.hpp: batch_buffers).
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void load(Stream& stream, int microbatch, const BufferSet& slot) = 0;
  // The same of depth `depth`, from 1, of multi-token prediction (batch_of_mtp).
  virtual void load_shifted(Stream& stream, int microbatch, int depth, const BufferSet& slot) = 0;
};

// Multi-token prediction in a step, by depth: what a label's loss weighs in total_loss, and where sums of loss and z go
// (depths, 2).
struct MtpLosses {
  ShortList<double, most_mtp_depths> per_label;
  View<double, 2> sums;
};

// This rank's part of a pipeline, and the tasks that its slots are made for: a step's, else an evaluation's.
struct PipelinePart {
  const RankShare& share;
  const std::vector<Task>& tasks;
  int microbatches = 1;
};

// Replays a rank's tasks (plan/tasks.hpp) on its part of the model. Slots hold what the microbatches in flight have
// saved.
template <class T>
class Executor {
 public:
  // Slots are allocated here, for the whole run. `sync` null: evaluation only.
  Executor(const Context<T>& context, const ParameterStorage<T>& storage, ParameterGather<T>& gather,
           GradientSync<T>* sync, PipelinePart part, VocabularyPart vocabulary, Communicator& pipeline);

  // Where the tasks of a step, which follow, find its batches and add losses.
  void begin_step(BatchSource& source, std::int64_t step, LossScale scale, View<double, 1> loss_sum,
                  View<double, 1> z_sum, MtpLosses mtp = {});
  // Any task but those of the whole step's scalars and update.
  void run(const Task& task);
  // The same of an evaluation of one microbatch of the source, without gradients, in the first slots. All stages' ranks
  // call it together.
  void begin_evaluation(BatchSource& source, int microbatch, View<double, 1> loss_sum, View<double, 1> z_sum);
  void set_routing_tape(RoutingTape* tape) { context_.router.tape = tape; }
  // Throws what went wrong in the background.
  void finish() {
    transfers_.finish();
    gather_.finish();
  }

 private:
  // Where the step's results go.
  struct Step {
    BatchSource* source = nullptr;
    LossScale scale;
    View<double, 1> loss_sum, z_sum;
    MtpLosses mtp;
    int first_microbatch = 0;  // of the source
  };
  // Buffers that live for some tasks: in the workspace, until their close.
  struct OpenFrame {
    std::optional<Frame> frame;
    BufferSet buffers;
  };

  void run_layer(const Task& task);
  void open(const BufferList& list);
  void close();
  void add_frames(BufferSet& set) const;
  void load_batch(const Task& task);
  void transfer(const Task& task);
  void local_copy(const Task& task);

  // executor_layers.cpp: passes of a layer
  void forward(const Task& task, const StageLayer& layer);
  void recompute(const Task& task, const StageLayer& layer);
  void backward_input(const Task& task, const StageLayer& layer);
  void backward_weight(const Task& task, const StageLayer& layer);
  void forward_of_departures(const Task& task);
  void backward_of_departures(const Task& task);

  // What the task at hand works on. Residual stream: position i is the input of the chunk's i-th block, behind the last
  // one the input of the final norm or the next stage. Normalised states by number.
  const StageContent& content(const Task& task) const {
    return part_.share.chunks[static_cast<std::size_t>(task.action.chunk)];
  }
  const std::vector<StageLayer>& layers(const Task& task) const {
    return part_.share.layers[static_cast<std::size_t>(task.action.chunk)];
  }
  std::size_t layer_of(const Task& task, LayerKind kind, int state) const;
  std::size_t block_at(const Task& task, int position) const {
    return static_cast<std::size_t>(position + content(task).embedding);
  }
  int position_of(const Task& task, const StageLayer& block) const {
    return static_cast<int>(block.number - content(task).layer(0));
  }
  const BufferSet& saved(const Task& task, std::size_t l) const {
    return slots_.saved(task.action.chunk, task.action.microbatch, l);
  }
  const BufferSet& left(const Task& task, std::size_t l) const {
    return slots_.left(task.action.chunk, task.action.microbatch, l);
  }
  View<T, 2> edge(const Task& task, Region region) const {
    return slots_.edge<T>(region, task.action.chunk, task.action.microbatch);
  }
  View<T, 2> edge(const Task& task, Region region, int state) const {
    return slots_.edge<T>(region, task.action.chunk, task.action.microbatch, state);
  }
  // What an edge holds now: in evaluation, the first state.
  View<T, 2> edge_in_use(int chunk, int m, Region region) const {
    return context_.training ? slots_.edge<T>(region, chunk, m) : slots_.edge<T>(region, chunk, m, 0);
  }
  View<T, 2> residual(const Task& task, int position) const;
  View<T, 2> residual_gradient(const Task& task, int position) const;
  View<T, 2> state(const Task& task, int number) const;
  View<T, 2> state_gradient(const Task& task, int number) const;
  bool is_own(const Task& task, int state) const {
    return content(task).final_norm() || state >= content(task).states_in;
  }
  // Of a block, residual or of a depth.
  View<T, 2> output_of(const Task& task, const StageLayer& block) const;
  View<T, 2> output_gradient_of(const Task& task, const StageLayer& block) const;
  View<T, 2> input_gradient_of(const Task& task, const StageLayer& block) const;
  // All that a block or a depth's input works on in the task.
  BufferSet buffers_of(const Task& task, const StageLayer& layer) const;
  BufferSet norm_buffers(const Task& task, const StageLayer& layer) const;

  const LocalUnit& local(std::size_t unit) const { return storage_.local(unit); }
  const T* weights(std::size_t unit) const { return storage_.unit(unit).weights(); }
  acc_t<T>* matrices(std::size_t unit) const { return storage_.unit(unit).matrices(); }
  UnitPart<acc_t<T>> vectors(std::size_t unit) const { return storage_.unit(unit).vector_sums(); }
  BlockTensors<const T> block_weights(const StageLayer& layer) const;
  BlockTensors<acc_t<T>> block_gradients(const StageLayer& layer, bool with_matrices) const;
  HeadTensors<const T> norm_weights(const StageLayer& layer) const;
  HeadTensors<acc_t<T>> norm_gradients(const StageLayer& layer) const;
  View<acc_t<T>, 2> table_gradient(std::size_t unit) const;

  Context<T> context_;
  const ParameterStorage<T>& storage_;
  ParameterGather<T>& gather_;
  GradientSync<T>* sync_;
  PipelinePart part_;
  VocabularyPart vocabulary_;
  ActivationSlots slots_;
  Transfers transfers_;
  std::array<OpenFrame, 3> frames_;  // as deep as tasks nest them: stream, recomputed, gradients
  std::size_t open_ = 0;
  Step step_;
};

}  // namespace forge

#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/to_size.hpp"
#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/mtp.hpp"
#include "parallel/gradient_sync.hpp"
#include "parallel/parameter_gather.hpp"
#include "parallel/slots.hpp"
#include "parallel/storage.hpp"
#include "parallel/transfers.hpp"

namespace forge {

// Puts the rows of a microbatch into a slot's.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void load(Stream& stream, int microbatch, const Batch& to) = 0;
  // What differs (Batch::list_shifted) at depth `depth`, from 1, of multi-token prediction.
  virtual void load_shifted(Stream& stream, int microbatch, int depth, const Batch& to) = 0;
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
  // Of a step that has begun: losses are also added up by their rows' source.
  void add_by_source(View<double, 1> sums) { step_.source_sums = sums; }
  // Any task but those of the whole step's scalars and update.
  void run(const Task& task);
  // The same of an evaluation of one microbatch of the source, without gradients, in the first slots. All stages' ranks
  // call it together.
  void begin_evaluation(BatchSource& source, int microbatch, View<double, 1> loss_sum, View<double, 1> z_sum);
  void set_routing_tape(RoutingTape* tape) { context_.router.tape = tape; }
  void set_operation_tape(OperationTape* tape) { context_.operations = tape; }
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
    View<double, 1> source_sums;
  };
  // Memory of the workspace from a task that opens it until its close.
  struct OpenFrame {
    TaskOp op{};
    std::optional<Frame> frame;
    void* memory = nullptr;
  };

  void open(const Task& task);
  void close();
  // Memory of the frame that a task of this kind has opened; null: none is open.
  void* opened(TaskOp op) const;
  void load_batch(const Task& task);
  void transfer(const Task& task);
  void local_copy(const Task& task);

  // executor_layers.cpp: the layers, by kind, each with its passes
  void run_layer(const Task& task);
  void run_arrivals(const Task& task, const StageLayer& layer);
  void run_embedding(const Task& task, const StageLayer& layer);
  void run_block(const Task& task, const StageLayer& layer);
  void run_norm(const Task& task, const StageLayer& layer);
  void run_head(const Task& task, const StageLayer& layer);
  void run_mtp_input(const Task& task, const StageLayer& layer);
  void run_departures(const Task& task, const StageLayer& layer);

  // What the task at hand works on. Residual stream: position i is the input of the chunk's i-th block, behind the last
  // one the input of the final norm or the next stage. Normalised states by number.
  const StageContent& content(const Task& task) const { return part_.share.chunks[to_size(task.action.chunk)]; }
  const std::vector<StageLayer>& layers(const Task& task) const {
    return part_.share.layers[to_size(task.action.chunk)];
  }
  std::size_t layer_of(const Task& task, LayerKind kind, int state) const;
  std::size_t block_at(const Task& task, int position) const { return to_size(position + content(task).embedding); }
  int position_of(const Task& task, const StageLayer& block) const {
    return static_cast<int>(block.number - content(task).layer(0));
  }
  // What layer l keeps from forward on, and what its B left for W.
  LayerBuffers<T> saved(const Task& task, std::size_t l) const;
  LayerBuffers<T> left(const Task& task, std::size_t l) const;
  Batch batch(const Task& task, int state) const {
    return slots_.batch(task.action.chunk, task.action.microbatch, state);
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
  GradientStream<T> gradient_stream() const;
  View<T, 2> state(const Task& task, int number) const;
  View<T, 2> state_gradient(const Task& task, int number) const;
  bool is_own(const Task& task, int state) const {
    return content(task).final_norm() || state >= content(task).states_in;
  }
  // Of a block, residual or of a depth.
  View<T, 2> output_of(const Task& task, const StageLayer& block) const;
  View<T, 2> output_gradient_of(const Task& task, const StageLayer& block) const;
  View<T, 2> input_gradient_of(const Task& task, const StageLayer& block) const;
  // All that a layer works on in the task: what it saved, and in backward what is recomputed and left.
  LayerBuffers<T> buffers_of(const Task& task, const StageLayer& layer) const;

  const LocalUnit& local(std::size_t unit) const { return storage_.local(unit); }
  const T* weights(std::size_t unit) const { return storage_.unit(unit).weights(); }
  acc_t<T>* matrices(std::size_t unit) const { return storage_.unit(unit).matrices(); }
  UnitPart<acc_t<T>> vectors(std::size_t unit) const { return storage_.unit(unit).vector_sums(); }
  View<const T, 2> table(std::size_t unit) const { return table_of(context_.spec(), local(unit), weights(unit)); }
  // What the task reads of the parameters in a layer's unit, and of a block's experts; and what it adds to.
  BlockParameters<const T> weights_in(const Task& task, const StageLayer& layer) const;
  BlockParameters<acc_t<T>> gradients_in(const Task& task, const StageLayer& layer) const;
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

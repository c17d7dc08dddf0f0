#pragma once

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "comm/tracks.hpp"
#include "core/to_size.hpp"
#include "nn/batch.plan.hpp"
#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/mtp.hpp"
#include "parallel/activation_slots.hpp"
#include "parallel/gradient_sync.hpp"
#include "parallel/parameter_gather.hpp"
#include "parallel/storage.hpp"
#include "parallel/transfers.hpp"

namespace forge {

// A source of batches: puts the rows of a microbatch into a slot's.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void load(Stream& stream, int microbatch, const Batch& to) = 0;
  // The inputs that differ (Batch::list_shifted) at depth `depth`, from 1, of multi-token prediction.
  virtual void load_shifted(Stream& stream, int microbatch, int depth, const Batch& to) = 0;
};

// Multi-token prediction in a step, by depth: the weight of a label's loss in total_loss, and where sums of loss and z
// go (depths, 2).
struct MtpLosses {
  ShortList<double, most_mtp_depths> per_label;
  View<double, 2> sums;
};

// For samples that are pairs: their loss's values in the deck, and where sums go (2).
struct PairInputs {
  double beta = 0, smoothing = 0;
  View<double, 1> sums;
};

// Where the tasks of a step, or of an evaluation, find batches and add losses.
struct StepInputs {
  BatchSource* source = nullptr;
  LossScale scale;
  View<double, 1> loss_sum, z_sum;
  MtpLosses mtp;
  View<double, 1> source_sums;  // losses by their rows' source; empty: they are not told apart
  int first_microbatch = 0;     // of the source
  RowScores row_scores = {};    // (R) of an evaluation that asks for them; then pairs have no loss
  PairInputs pairs = {};
};

// This rank's part of a pipeline, and the slots of its lists of tasks: of training steps by their batches, or of an
// evaluation.
struct PipelinePart {
  const RankShare& share;
  std::vector<SlotTables> slots;
};

// Replays a rank's tasks (plan/tasks.hpp) on its part of the model. Slots hold the saved activations of microbatches in
// flight.
template <class T>
class Executor {
 public:
  // Slots are allocated here, for the whole run. `sync` null: evaluation only.
  Executor(const LayerServices<T>& services, const ParameterStorage<T>& storage, ParameterGather<T>& gather,
           GradientSync<T>* sync, const PipelinePart& part, VocabularyPart vocabulary, Mesh& mesh);

  // Sets the inputs of the tasks that follow, until the next begins: a step's, or an evaluation's of one microbatch of
  // the source, without gradients, in the first slots. All stages' ranks call it together.
  void begin_step(std::int64_t step, const StepInputs& inputs) {
    step_.step = step;
    step_.training = true;
    inputs_ = inputs;
  }
  void begin_evaluation(const StepInputs& inputs) {
    step_.training = false;
    inputs_ = inputs;
  }
  // Counts rounded numbers in a step that has begun, until the next begins; an empty View: doesn't count them.
  void count_rounding(const RoundingCounts& counts) { step_.rounding.counts = counts; }
  // A fault on purpose, of forward passes from here on: a bit of each block's output is wrong.
  void miscompute(bool wrong) { miscomputes_ = wrong; }
  // Steps from here on have the tasks of another list, and the scales of routers' losses that belong to it.
  void use(std::size_t list, const RouterScales& scales) {
    slots_.use(list);
    step_.router = scales;
  }
  // From here on tasks generate texts: attention sees the rows before, and the head leaves logits.
  void generate_with(const KvCache<T>* cache, const RowLogits<acc_t<T>>& logits) {
    step_.cache = cache;
    row_logits_ = logits;
  }
  // Runs any task but the tasks of the whole step's scalars and update. Those of a pair run with its end.
  void run(const Task& task);
  std::vector<std::span<std::byte>> received(Region edge) const { return slots_.received(edge); }
  void set_routing_tape(RoutingTape* tape) { step_.routing = tape; }
  void set_operation_tape(OperationTape* tape) { step_.operations = tape; }
  // Throws errors of work in the background.
  void finish() {
    transfers_.finish();
    gather_.finish();
  }

 private:
  // Memory of the workspace from a task that opens it until its close.
  struct OpenFrame {
    Frame frame;
    void* memory;

    OpenFrame(Arena& arena, std::size_t bytes) : frame(arena), memory(arena.allocate(bytes, Category::workspace)) {}
  };

  using OpenFrames = std::array<std::optional<OpenFrame>, layer_memory_count>;  // by their buffers

  // Passes that run at once, each with a stack of its own in the workspace (train.overlap), and layers' groups.
  struct Pair {
    Tracks tracks;
    std::vector<Communicator*> groups;
    std::array<Arena, 2> stacks;
    std::array<OpenFrames, 2> frames;
    std::vector<Task> tasks;                                          // of the pair at hand
    std::map<std::pair<int, int>, std::array<std::size_t, 2>> bytes;  // of the stacks, by the chunks of the passes

    Pair(Stream& compute, const LayerGroups& of_layers) : tracks(compute, *of_layers.stream) {
      const LayerGroups& g = of_layers;
      for (Communicator* group : {g.tp, g.cp, g.ep, g.etp, g.tp_behind, g.ep_rail, g.ep_node, g.cp_inner, g.cp_outer})
        if (group) groups.push_back(group), group->take_turns(&tracks);
    }
    ~Pair() {
      for (Communicator* group : groups) group->take_turns(nullptr);
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
  };

  void run_now(const Task& task);
  void begin_pair();
  void run_pair();
  Arena& stack_of(const Task& task) { return task.track < 0 ? services_.arena : pair_->stacks[to_size(task.track)]; }
  OpenFrames& frames_of(const Task& task) { return task.track < 0 ? frames_ : pair_->frames[to_size(task.track)]; }

  void load_batch(const Task& task);
  void transfer(const Task& task);
  void local_copy(const Task& task);

  // A layer's part of the work: its passes, and where they read and write.
  class LayerTask;
  void run_layer(const Task& task);  // executor_layers.cpp

  const BufferContext& buffers_of(const StageLayer& layer) const {
    return layer.recomputes_all ? in_full_ : services_.buffers;
  }
  const StageContent& content(int chunk) const { return share_.chunks[to_size(chunk)]; }
  // The states on an edge now: in evaluation, the first state.
  View<T, 2> edge(Region region, int chunk, int m) const {
    return slots_.edge<T>(region, chunk, m, 0, step_.training ? states_on(region, content(chunk)) : 1);
  }

  const LayerServices<T> services_;
  const BufferContext in_full_;  // of layers that recompute all
  PassState<T> step_;            // the part common to the tasks of a step
  const ParameterStorage<T>& storage_;
  ParameterGather<T>& gather_;
  GradientSync<T>* sync_;
  const RankShare& share_;
  VocabularyPart vocabulary_;
  ActivationSlots slots_;
  Transfers transfers_;
  OpenFrames frames_;
  std::optional<Pair> pair_;
  StepInputs inputs_;
  RowLogits<acc_t<T>> row_logits_;
  bool miscomputes_ = false;
};

}  // namespace forge

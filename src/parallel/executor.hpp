#pragma once

#include <vector>

#include "layout/chunk_units.hpp"
#include "nn/block.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "parallel/gradient_sync.hpp"
#include "parallel/parameter_gather.hpp"
#include "parallel/slots.hpp"
#include "parallel/storage.hpp"
#include "parallel/timers.hpp"
#include "parallel/transfers.hpp"
#include "schedule/interpret.hpp"

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

// This rank's part of a pipeline.
struct PipelinePart {
  const Schedule& schedule;  // lowered
  int rank = 0;              // along pp
  std::vector<StageContent> chunks;
};

// Carries out the actions of one rank's lowered schedule (schedule/interpret.hpp) on its part of the model. Slots hold
// what the microbatches in flight have saved.
template <class T>
class Executor {
 public:
  // Slots are allocated here, for the whole run. `sync` null: evaluation only.
  Executor(const Context<T>& context, const ParameterStorage<T>& storage, ParameterGather<T>& gather,
           GradientSync<T>* sync, const PipelinePart& part, VocabularyPart vocabulary, Communicator& pipeline,
           PhaseTimers& timers);

  // One pass over the schedule: sums of loss, z and gradients over this rank's microbatches.
  void run_step(BatchSource& source, std::int64_t step, LossScale scale, View<double, 1> loss_sum,
                View<double, 1> z_sum, MtpLosses mtp = {});
  // Adds loss and z of one microbatch, where the head is here, without gradients, in the first slots. All stages' ranks
  // call it together.
  void evaluate(BatchSource& source, int microbatch, View<double, 1> loss_sum, View<double, 1> z_sum);
  void set_routing_tape(RoutingTape* tape) { context_.router.tape = tape; }
  // Throws what went wrong in the background.
  void finish() { transfers_.finish(); }

  // What schedule/interpret.hpp calls. Units are gathered and reduced one by one inside the passes, where their buffers
  // are used; the schedule's own actions start the first gather ahead of its pass.
  void forward(const Action& action);
  void backward(const Action& action);
  void backward_input(const Action& action);
  void backward_weight(const Action& action);
  void recompute(const Action&) {}  // block by block inside backward, where its buffers are shared
  void begin_group(const Action&) { transfers_.begin_group(); }
  void end_group(const Action&) { transfers_.end_group(); }
  void post_send(const Action& action);
  void wait_send(const Action& action) { transfers_.wait(context_.stream, action); }
  void post_recv(const Action& action);
  void wait_recv(const Action& action) { transfers_.wait(context_.stream, action); }
  void hand_over(const Action& action);
  void gather_parameters(const Action& action);
  void wait_parameters(const Action&) {}
  void release_parameters(const Action&) {}
  void reduce_gradients(const Action&) {}
  void wait_gradients(const Action&) {}

 private:
  // Where the step's results go.
  struct Step {
    BatchSource* source = nullptr;
    LossScale scale;
    View<double, 1> loss_sum, z_sum;
    MtpLosses mtp;
  };
  class Pass;

  const StageContent& content(int chunk) const { return part_.chunks[static_cast<std::size_t>(chunk)]; }
  const ChunkUnits& units(int chunk) const { return units_[static_cast<std::size_t>(chunk)]; }
  const LocalUnit& local(std::size_t unit) const { return storage_.local(unit); }
  std::int64_t layer_of(int chunk, int l) const { return content(chunk).layer(l); }

  void forward_pass(int chunk, int m, BatchSource& source, int microbatch, bool gradients);
  void embed(Pass& pass, int chunk, int m);
  void run_head(Pass& pass, int chunk, int m, bool gradients);
  void run_final_norm(Pass& pass, int chunk, int m);
  void final_norm_backward(Pass& pass, int chunk, int m, View<T, 2> dx);
  void embedding_backward(int chunk, int m, View<T, 2> d_out);
  // executor_mtp.cpp
  int own_states(int chunk) const { return content(chunk).final_norm() + content(chunk).mtp_layers; }
  BufferSet own_state(int chunk, int m, int i) const;
  void head_of_states(int chunk, int m, View<const T, 2> output, HeadTensors<acc_t<T>>* g);
  void load_shifted(int chunk, int m, BatchSource& source, int microbatch);
  void hand_on_states(int chunk, int m, bool training);
  void take_state_gradients(int chunk, int m);
  void hand_back_state_gradients(int chunk, int m);
  // Of depth d, from 1: what its labels weigh, and its sum of losses (0) or z (1).
  LossScale scale_of_depth(int d) const { return {step_.mtp.per_label[static_cast<std::size_t>(d - 1)], 0}; }
  View<double, 1> sum_of_depth(int d, int which) const {
    return View<double, 1>(step_.mtp.sums.row(d - 1) + which, {{1}});
  }
  struct MtpLayer;
  BufferSet before_mtp(int chunk, int m, int k) const;
  MtpLayer use_mtp(Pass& pass, int chunk, int l, bool with_matrices);
  void mtp_input_gradient(int chunk, int m, int k, const MtpLayer& layer, const BufferSet& kept, View<T, 2> d_x);
  void mtp_forward(Pass& pass, int chunk, int m);
  void mtp_head(Pass& pass, int chunk, int m, int k, const MtpTensors<const T>& module);
  void mtp_backward(Pass& pass, int chunk, int m, View<T, 2> above, View<T, 2> below);
  void mtp_backward_input(Pass& pass, int chunk, int m);
  void mtp_backward_weight(int chunk, int m);
  // The weights of layer l of a chunk (`base`: its unit's buffer), and its gradients; drop_layer() when they were read.
  BlockTensors<const T> use_layer(Pass& pass, int chunk, int l, const T** base = nullptr);
  void drop_layer(Pass& pass, int chunk, int l);
  BlockTensors<acc_t<T>> layer_gradients(int chunk, int l, bool with_matrices, bool with_experts);
  void experts_done(int chunk, int l);
  View<T, 2> layer_output(int chunk, int m, int l) const;
  View<T, 2> output_gradient_of(int chunk, int m, int l) const;  // B apart from W
  bool passes_through(int chunk) const {
    return content(chunk).layers == 0 && !content(chunk).embedding && !ends_model(chunk);
  }
  // Whether the final norm, multi-token layers or the head are here.
  bool ends_model(int chunk) const { return content(chunk).head || content(chunk).mtp_layers > 0; }
  // What an edge holds now: in evaluation, the first state.
  View<T, 2> part_in_use(View<T, 2> edge) const { return context_.training ? edge : slots_.state_of(edge, 0); }

  Context<T> context_;
  const ParameterStorage<T>& storage_;
  ParameterGather<T>& gather_;
  GradientSync<T>* sync_;
  PipelinePart part_;
  VocabularyPart vocabulary_;
  PhaseTimers& timers_;
  ActivationSlots slots_;
  Transfers transfers_;
  std::vector<ChunkUnits> units_;  // by chunk
  Step step_;
};

}  // namespace forge

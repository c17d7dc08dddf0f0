#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/mesh.hpp"
#include "core/heartbeat.hpp"
#include "data/batch_rows.hpp"
#include "device/nvtx_range.hpp"
#include "device/readback.hpp"
#include "device/timeline.hpp"
#include "kernels/attention/attention_cudnn.hpp"
#include "kernels/gemm/gemm.hpp"
#include "nn/generation.plan.hpp"
#include "nn/host_counts.hpp"
#include "optim/optimizer.hpp"
#include "parallel/executor.hpp"
#include "parallel/timers.hpp"
#include "plan/setup.hpp"
#include "train/metrics.hpp"
#include "train/profile.hpp"
#include "train/routers.hpp"

namespace forge {

// One rank's model, memory and machinery. Everything is allocated in the constructor, in one arena of the planned size.
template <class T>
class Session {
 public:
  Session(const RunSetup& setup, std::size_t arena_bytes, RunKind kind, Mesh& mesh, int threads);
  ~Session() { mesh_.measure_in(nullptr); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Fills the parameters with initial values, or from tensor files: `load` sets the storage's master weights.
  void initialise();
  template <class F>
  void load(F&& fill) {
    fill(*storage_, stream_);
    read_history();
    parameters_changed();
  }
  // To be called when the master weights' copies have changed.
  void parameters_changed() {
    if (setup_.deck.train.zero_stage < 3)
      for (const Task& task : gathers_) executor_->run(task);
    if (setup_.share.coded.amaxes() > 0) executor_->run({TaskOp::weight_amaxes, {}});
  }

  // Loss and gradients of a step, reduced over all ranks; labels: unmasked labels of the step over all ranks.
  // The scalars hold norm, clip coefficient and finiteness for the update.
  void compute_gradients(BatchSource& source, std::int64_t step, const LabelCounts& labels);
  // A checksum of the gradients that this rank gives to reductions in between, for a deck that checks gradients.
  void begin_checksum();
  std::uint64_t end_checksum();
  // Waits for the step's scalars, with norms by unit where they are wanted; updates routers' biases by the step's
  // loads, where all was finite; and makes update number `number` (Optimizer::Update) with these gradients, for which
  // it waits with norms alone. Where `holds_back` returns true for a finite step, on all ranks, nothing changes either.
  using HoldsBack = std::function<bool(const StepResult&)>;
  StepResult update(Optimizer<T>& optimizer, std::int64_t number, const StepRates& rates, const LabelCounts& labels,
                    bool norms = false, const HoldsBack& holds_back = {});
  // Like update(), but only changes the weights: no scalars are read, no router's biases change.
  void update_weights(Optimizer<T>& optimizer, std::int64_t number, const StepRates& rates);
  // Waits for the step and reads its scalars.
  StepResult read_step(const LabelCounts& labels);
  // For optimizers whose weights to use are averages of the trained ones: puts the averages where the gradients were,
  // for a save; or in the place of the trained ones, which stand where the gradients were until use_trained(). Until
  // the next step's gradients. With other optimizers nothing changes.
  void put_averages();
  void use_averages() {
    put_averages();
    exchange_weights();
  }
  void use_trained() { exchange_weights(); }
  // Sum of the losses of microbatches over all ranks, without gradients, with the weights to use: begin, add each, then
  // the sum.
  void begin_evaluation();
  // `scores`: of the microbatch's rows, on ranks that have the head.
  void evaluate_microbatch(BatchSource& source, int microbatch, const RowScores& scores = {});
  double evaluated_loss() { return evaluated_sums().loss; }
  // Sums of an evaluation, also of pairs, where samples are pairs (data/sample.hpp).
  struct EvaluatedSums {
    double loss = 0, margins = 0, right = 0;
  };
  EvaluatedSums evaluated_sums();

  Stream& stream() { return stream_; }
  Arena& arena() { return arena_; }
  Mesh& mesh() { return mesh_; }
  ParameterStorage<T>& storage() { return *storage_; }
  // For a rank without its peers (train/replay.hpp): fills the memory for receives that stays, gathered weights and the
  // edges of the stage, with initial and with normal numbers, and returns that memory. Gradients on an edge have the
  // deviation `gradients`.
  std::vector<std::span<const std::byte>> draw_received(double gradients);
  UpdateTools<T> update_tools() {
    return {setup_.share.matrices,
            setup_.share.factored,
            setup_.buffers,
            arena_,
            *gemm_,
            mesh_,
            line_moments_.values,
            setup_.spec,
            run_.peaks,
            run_.head_factors,
            setup_.deck.train.seed};
  }
  // The optimizer's moments of rows and columns of matrices (layout/factored_moments.hpp); perhaps empty.
  View<acc_t<T>, 1> line_moments() const { return line_moments_.values; }
  PhaseTimers& timers() { return timers_; }
  // The tasks of the step at hand, one by one: gradients, then the update. The timeline's numbers count them.
  std::vector<Task> tasks() const;
  Timeline& timeline() { return timeline_; }
  Routers<T>& routers() { return *routers_; }
  // The history of the recipe that has one; empty with another one.
  const AmaxHistory& amax_history() const { return run_.amax_history; }
  bool has_gradients() const { return sync_ != nullptr; }
  void set_routing_tape(RoutingTape* tape) { executor_->set_routing_tape(tape); }
  void set_operation_tape(OperationTape* tape) { executor_->set_operation_tape(tape); }
  View<StepScalars, 1> scalars() const { return scalars_; }
  const HostCounts& host_counts() const { return counts_; }
  const RunSetup& setup() const { return setup_; }
  // Buffers of a run that scores, or generates (BufferContext); else empty.
  const ScoreBuffers& score_buffers() const { return scored_; }
  const GenerationBuffers<T>& generation() const { return generation_; }
  // The heartbeat of the rank's watchdog, null: none. Whoever does long work with the session beats it.
  void set_heartbeat(Heartbeat* heartbeat) { heartbeat_ = heartbeat; }
  Heartbeat* heartbeat() const { return heartbeat_; }
  void beat() {
    if (heartbeat_) heartbeat_->beat();
  }

 private:
  const std::vector<Task>& step_tasks_now() const { return steps_[setup_.schedule_number(now_)]; }
  // Scopes of the step at hand.
  double router_scopes() const { return setup_.router_scopes(now_); }
  void run(const Task& task);
  // While a task runs, for whoever watches it: a profiler, and a step's own timeline.
  struct Watch {
    std::optional<NvtxRange> range;
    std::optional<Timeline::Scope> time;
  };
  Watch watch(std::size_t number, const Task& task) { return {range_of(task), measured(number, task)}; }
  std::optional<Timeline::Scope> measured(std::size_t number, const Task& task);
  void clear_sums();
  void clip();
  // Computes the update's scalars from all ranks' sums of a step. Then, with the update, the history of amaxes.
  void finish_sums();
  void move_history();
  void read_history();  // once it is loaded
  void clear(const View<float, 1>& some) { fill_zero(stream_, some.data, to_size(some.size()) * sizeof(float)); }
  View<double, 1> scalar(double StepScalars::*member) const {
    return View<double, 1>(&(scalars_.data->*member), {{1}});
  }
  // Only one of the ranks that computed a loss counts it.
  void sum_losses();
  // Losses of a mixture's sources, or sums of pairs, and the scalars behind them in one piece of memory, as far as
  // `last`.
  View<double, 1> summed_to(std::int64_t last) const {
    return run_.scalars.slice(0, setup_.buffers.leading_sums() + last);
  }
  View<double, 1> source_sums() const { return setup_.buffers.pairs ? View<double, 1>() : summed_to(0); }
  PairInputs pair_inputs() const {
    const PreferenceDeck& deck = setup_.deck.preference;
    return setup_.buffers.pairs ? PairInputs{deck.beta, deck.label_smoothing, summed_to(0)} : PairInputs{};
  }
  // Multi-token prediction's weights in a step, by depth.
  MtpLosses mtp_losses(const LabelCounts& labels) const;
  // Bytes read back: the larger of read_step()'s and of the reports of norms.
  std::size_t readback_bytes() const;
  // Behind an update that leaves its changes where the gradients were.
  void add_unit_norms();
  void read_unit_norms(StepResult& result);
  void add_norm();
  void draw_edge(Region edge, double deviation, std::vector<std::span<const std::byte>>& memory);
  void exchange_weights();
  // Whether the task is one of the optimizer's; then it runs.
  bool run_optimizer(const Task& task, Optimizer<T>& optimizer, const Update& update);
  void spoil_gradient();  // a fault on purpose
  void start_generation();
  StepResult read_result(const LabelCounts& labels, const HoldsBack& holds_back);

  RunSetup setup_;
  Mesh& mesh_;
  Heartbeat* heartbeat_ = nullptr;
  Arena arena_;
  // Streams end before the memory that their work may still touch.
  Stream stream_;
  HostCounts counts_;
  std::unique_ptr<Stream> exchange_;  // behind the layers: LayerGroups::stream
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<CudnnAttention> cudnn_;  // in the same workspace; where the run takes_cudnn()
  std::unique_ptr<ParameterStorage<T>> storage_;
  std::unique_ptr<ParameterGather<T>> gather_;
  std::unique_ptr<GradientSync<T>> sync_;
  std::vector<std::vector<Task>> steps_;             // by RunSetup::schedule_number; none without gradients
  std::vector<Task> update_, evaluation_, gathers_;  // plan/tasks.hpp
  std::int64_t now_ = 1;                             // the step at hand
  std::unique_ptr<Executor<T>> executor_;
  PhaseTimers timers_{stream_};
  Timeline timeline_;
  std::unique_ptr<Routers<T>> routers_;
  RunBuffers<T> run_;
  ScoreBuffers scored_;
  GenerationBuffers<T> generation_;
  KvCache<T> cache_;  // its keys and values
  LineMoments<acc_t<T>> line_moments_;
  View<StepScalars, 1> scalars_;
  Readback readback_{0};
};

}  // namespace forge

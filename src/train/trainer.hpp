#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.hpp"
#include "comm/watchdog.hpp"
#include "data/loader.hpp"
#include "optim/optimizer.hpp"
#include "train/busy_cores.hpp"
#include "train/checkpoints.hpp"
#include "train/gradient_check.hpp"
#include "train/job_report.hpp"
#include "train/replica_check.hpp"
#include "train/session.hpp"
#include "train/slow_ranks.hpp"
#include "train/spikes.hpp"
#include "train/step_lines.hpp"
#include "train/training_data.hpp"
#include "train/training_log.hpp"
#include "train/validations.hpp"

namespace forge {

// This rank's samples.
BatchShare batch_share(const RunSetup& setup);

// The first step's share of a rank, read now, and the labels of the step over all data-parallel ranks.
struct FirstBatch {
  FirstBatch(const RunSetup& setup, const TrainingData& data, Mesh& mesh);
  Loader loader;
  const HostBatch& batch;
  LabelCounts labels;
};

// The training loop of one rank.
template <class T>
class Trainer {
 public:
  // Goes on behind `start`. `checkpoints` may be null: nothing is saved; `world`, too: there is no watchdog.
  Trainer(Session<T>& session, const TrainingData& data, double peak_flops, TrainingLog log,
          const RunProgress& start = {}, Checkpoints<T>* checkpoints = nullptr, const World* world = nullptr);

  // Steps start.step + 1 … train.steps, saving on the way. Throws Error (code not_finite) after
  // train.max_not_finite_steps steps in a row with NaN or Inf in loss or gradient norm; all ranks throw in the same
  // step.
  void run();

 private:
  void validate_at_start();
  void step(std::int64_t s);
  const HostBatch& next_batch(LabelCounts& labels);
  // The record of the step's result, once it is done.
  StepRecord record_of(std::int64_t s, const StepResult& result, double rate, const LabelCounts& labels);
  std::vector<SourceReport> sources_of(std::int64_t s, const StepResult& result, const LabelCounts& labels) const;
  void report(const StepRecord& record);
  double seconds_left(std::int64_t s) const;
  // Where the step was faster than the peak, its speed becomes the peak.
  void raise_peak(std::int64_t s);
  // Whether the step is one of those in which ranks' computation is compared.
  bool compares(std::int64_t s) const;
  // Whether this rank writes the step's timeline.
  bool profiles(std::int64_t s) const;
  void say_steps_before() const;
  // Whether the step makes no update for a spike (train/spikes.hpp), by all ranks' agreement; notes the consequence.
  bool holds_back(std::int64_t s, const StepResult& result);
  // Where the run can go back to, and has other data for step s: the checkpoints of Checkpoints::committed().
  std::optional<std::vector<std::string>> ways_back(std::int64_t s);
  // The data's places of step s.
  std::vector<NumberRange> places_of(std::int64_t s) const;
  // To be called behind step s, or before it is saved, where ranks compare their weights.
  void check_replicas(std::int64_t s, bool saves);
  // After a spike in step s: goes back to the checkpoint, whose step it returns, without the places of s.
  std::int64_t go_back(std::int64_t s);
  // Writes the profile of the step that has just ended.
  void write_profile_of(std::int64_t s);
  // The place that the watchdog reports.
  void enter(const char* phase) {
    if (watchdog_) watchdog_->enter(phase);
  }
  const TrainDeck& train() const { return session_.setup().deck.train; }

  Session<T>& session_;
  TrainingLog log_;
  Optimizer<T> optimizer_;
  SampleStream stream_;
  std::optional<Loader> loader_;
  Validations<T> validations_;
  double peak_flops_, flops_per_token_;
  Checkpoints<T>* checkpoints_;
  Watchdog* watchdog_;
  std::int64_t first_;  // step of this run, or since it has gone back
  StepLines lines_;
  std::int64_t updates_, bad_in_a_row_, peak_bytes_ = 0;
  double seconds_ = 0, step_seconds_ = 0;  // of all steps of this run, of the last one
  // When the host had submitted the step before, or ended the work between: a step's time counts from there.
  PhaseTimers::Clock::time_point since_;
  BusyCores busy_cores_;
  SlowRanks slow_ranks_;
  std::optional<ReplicaCheck<T>> replicas_;  // with train.check_replicas_steps
  GradientCheck<T> gradients_;
  SpikeWatch spikes_;
  std::string spike_;                                // of this step, or of the one that the run has gone back for
  std::optional<std::vector<std::string>> returns_;  // to the first of these that is whole, behind this step
  bool returned_ = false;
};

}  // namespace forge

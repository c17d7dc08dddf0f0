#pragma once

#include <functional>
#include <numbers>
#include <optional>
#include <vector>

#include "comm/watchdog.hpp"
#include "data/validation.hpp"
#include "train/checkpoints.hpp"
#include "train/metrics.hpp"
#include "train/session.hpp"
#include "train/training_data.hpp"
#include "train/training_log.hpp"

namespace forge {

// Mean loss per label of a validation set, over all ranks; NaN where it has no labels. `stop`, if any, is asked
// behind each microbatch but the last, and answers alike on all ranks: whether the evaluation is broken
// off.
struct EvaluationResult {
  double loss = 0;          // NaN without labels
  std::int64_t labels = 0;  // or pairs
  std::optional<PairReport> pairs{};
  std::int64_t bytes = 0;         // of the labels' text, where the set's batches count them, else 0
  std::int64_t microbatches = 0;  // of this rank, that were evaluated
  bool broken_off = false;        // then the loss has no meaning

  // Bits of all labels.
  double bits() const { return loss * static_cast<double>(labels) / std::numbers::ln2; }
};
template <class T>
EvaluationResult evaluate_set(Session<T>& session, ValidationSet& set, const std::function<bool()>& stop = {});

// The buffers for reading the sets of a run, or of an evaluation.
ValidationBatches validation_batches(const RunSetup& setup, const TrainingData& data);
// The held-out sets as this rank reads them. Data and batches must live longer than they.
std::vector<ValidationSet> validation_sets(const RunSetup& setup, const TrainingData& data, ValidationBatches& batches);

// The validations of a training: the held-out sets and the tasks, one after the other. All ranks.
template <class T>
class Validations {
 public:
  // There are none where train.validate_every_steps is 0. `checkpoints` and `watchdog` may be null, else must live
  // longer than this object.
  Validations(Session<T>& session, const TrainingData& data, const TrainingLog& log, Checkpoints<T>* checkpoints,
              Watchdog* watchdog);
  Validations(const Validations&) = delete;
  Validations& operator=(const Validations&) = delete;

  // Microbatches of one validation, on each rank.
  std::int64_t microbatches() const;
  // Whether there is one behind step s; 0: before the first one, of sets with names and tasks.
  bool due(std::int64_t s) const;
  // Evaluates, and prints the results. Broken off where the job leaves, which leaves time for the save. `times` has the
  // seconds, or that it was broken off.
  void run(std::int64_t s, StepTimes& times);

 private:
  // False: broken off.
  bool evaluate_all(std::int64_t s);
  bool evaluate_sets(std::int64_t s, const std::function<bool()>& stop);
  bool evaluate_tasks(std::int64_t s, const std::function<bool()>& stop);
  void say(std::int64_t s, const ValidationSet& set, const EvaluationResult& result) const;
  const RunSetup& setup() const { return session_.setup(); }

  Session<T>& session_;
  TrainingLog log_;
  Checkpoints<T>* checkpoints_;
  Watchdog* watchdog_;
  std::optional<ValidationBatches> batches_;
  std::vector<ValidationSet> sets_;
  const std::vector<ChoiceTask>& tasks_;
};

}  // namespace forge

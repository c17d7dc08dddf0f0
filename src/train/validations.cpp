#include "train/validations.hpp"

#include <array>
#include <chrono>
#include <numeric>

#include "config/rounding_options.hpp"
#include "core/faults.hpp"
#include "core/to_size.hpp"
#include "train/batch_feed.hpp"
#include "train/choices.hpp"
#include "train/job_report.hpp"

namespace forge {

template <class T>
EvaluationResult evaluate_set(Session<T>& session, ValidationSet& set, const std::function<bool()>& stop) {
  EvaluationResult result;
  session.begin_evaluation();
  std::array<Event, 2> read;  // by the copies of the microbatches before
  std::array<std::int64_t, 2> sums{};
  auto& [labels, bytes] = sums;
  for (std::int64_t m = 0; m < set.microbatches() && !result.broken_off; ++m) {
    Event& passed = read[to_size(m % 2)];
    passed.synchronize();
    const HostBatch& batch = set.microbatch(m);
    BatchFeed feed(batch);
    session.evaluate_microbatch(feed, 0);
    passed.record(session.stream());
    session.beat();
    labels += batch.label_count;
    bytes += batch.label_bytes;
    result.microbatches = m + 1;
    result.broken_off = stop && m + 1 < set.microbatches() && stop();
  }
  session.mesh().data().sum_host(sums);
  const auto evaluated = session.evaluated_sums();
  const auto n = static_cast<double>(labels);
  result.loss = labels > 0 ? evaluated.loss / n : std::nan("");
  if (session.setup().buffers.pairs && labels > 0) result.pairs = {evaluated.margins / n, evaluated.right / n};
  result.labels = labels;
  result.bytes = bytes;
  return result;
}

ValidationBatches validation_batches(const RunSetup& s, const TrainingData& data) {
  const TrainDeck& t = s.deck.train;
  return ValidationBatches(t.microbatch_sequences, t.sequence_tokens, s.spec.V(), s.rows(), data.token_bytes);
}

std::vector<ValidationSet> validation_sets(const RunSetup& s, const TrainingData& data, ValidationBatches& batches) {
  std::vector<ValidationSet> sets;
  for (const TrainingData::HeldOut& held_out : data.validation)
    sets.emplace_back(*held_out.tokens,
                      validation_sequences(*held_out.tokens, held_out.deck, s.deck.train.validation_sequences),
                      s.replicas(), s.share.data_rank, batches, held_out.deck.name);
  return sets;
}

template <class T>
Validations<T>::Validations(Session<T>& session, const TrainingData& data, const TrainingLog& log,
                            Checkpoints<T>* checkpoints, Watchdog* watchdog)
    : session_(session), log_(log), checkpoints_(checkpoints), watchdog_(watchdog), tasks_(data.tasks) {
  if (data.validation.empty() || setup().deck.train.validate_every_steps == 0) return;
  batches_.emplace(validation_batches(setup(), data));
  sets_ = validation_sets(setup(), data, *batches_);
  if (checkpoints_) checkpoints_->expect_validations(microbatches());
}

template <class T>
std::int64_t Validations<T>::microbatches() const {
  return std::accumulate(sets_.begin(), sets_.end(), std::int64_t{0},
                         [](std::int64_t sum, const ValidationSet& set) { return sum + set.microbatches(); });
}

// Scales of the delayed recipe come from steps.
template <class T>
bool Validations<T>::due(std::int64_t s) const {
  if (sets_.empty() && tasks_.empty()) return false;
  const TrainDeck& t = setup().deck.train;
  if (s == 0) return rounding_options(setup().deck).history == 0 && (!tasks_.empty() || !sets_.front().name().empty());
  return s % t.validate_every_steps == 0 || s == t.steps;
}

template <class T>
void Validations<T>::run(std::int64_t s, StepTimes& times) {
  using Clock = PhaseTimers::Clock;
  const auto start = Clock::now();
  const auto timer = session_.timers().start(Phase::validation);
  if (watchdog_) watchdog_->start_other(s, "validation");
  times.broken_off = !evaluate_all(s);
  if (!times.broken_off) times.validation = std::chrono::duration<double>(Clock::now() - start).count();
}

template <class T>
bool Validations<T>::evaluate_all(std::int64_t s) {
  const int rank = session_.mesh().rank();
  std::function<bool()> stop;
  StopPoints points;
  if (checkpoints_) {
    Leaving& leaving = checkpoints_->leaving();
    const double saves = checkpoints_->seconds_to_save();
    inject_fault(rank, "validation", [&] { return leaving.asked(saves); });
    stop = [&leaving, &points, saves] { return points.stop(leaving, saves); };
  } else {
    inject_fault(rank, "validation");
  }
  return evaluate_sets(s, stop) && evaluate_tasks(s, stop);
}

template <class T>
bool Validations<T>::evaluate_sets(std::int64_t s, const std::function<bool()>& stop) {
  if (s == 0 && !sets_.empty() && sets_.front().name().empty()) return true;
  std::int64_t done = 0;
  for (ValidationSet& set : sets_) {
    const EvaluationResult result = evaluate_set(session_, set, stop);
    done += result.microbatches;
    if (!result.broken_off) say(s, set, result);
    const bool last = &set == &sets_.back() && tasks_.empty();
    if (!result.broken_off && (last || !stop || !stop())) continue;
    log_.say("            validation broken off behind " + std::to_string(done) + " of " +
             std::to_string(microbatches()) + " microbatches: " + checkpoints_->leaving().why() + "\n");
    return false;
  }
  return true;
}

// Choices are scored as forge score does it.
template <class T>
bool Validations<T>::evaluate_tasks(std::int64_t s, const std::function<bool()>& stop) {
  if (tasks_.empty()) return true;
  Scorer<T> scorer(session_);
  bool broken_off = false;
  for (const ChoiceTask& task : tasks_) {
    const auto result = evaluate_task(scorer, task, setup().deck.train.sequence_tokens, stop);
    if (result) {
      const TaskRecord record{task.name, result->questions, result->accuracy, result->normalised};
      log_.task(s, record);
      log_.say(task_line(record));
    }
    broken_off = !result || (&task != &tasks_.back() && stop && stop());
    if (broken_off) break;
  }
  scorer.finish();
  if (broken_off)
    log_.say("            validation broken off among the tasks: " + checkpoints_->leaving().why() + "\n");
  return !broken_off;
}

template <class T>
void Validations<T>::say(std::int64_t s, const ValidationSet& set, const EvaluationResult& result) const {
  ValidationRecord record{set.name(), result.loss, result.labels, {}};
  if (!set.name().empty() && result.bytes > 0) record.bits_per_byte = result.bits() / static_cast<double>(result.bytes);
  record.pairs = result.pairs;
  log_.validation(s, record);
  log_.say(validation_line(record));
}

FORGE_INSTANTIATE_CLASS(Validations);
FORGE_INSTANTIATE_FUNCTION(evaluate_set);

}  // namespace forge

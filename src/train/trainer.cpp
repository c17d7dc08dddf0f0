#include "train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "config/ranges.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/shortage.hpp"
#include "model/flops.hpp"
#include "optim/learning_rate.hpp"
#include "train/batch_feed.hpp"
#include "train/profile.hpp"

namespace forge {

BatchShare batch_share(const RunSetup& s) {
  return {s.batches, s.deck.train.microbatch_sequences, s.replicas(), s.share.data_rank};
}

namespace {

// Every rank of a data-parallel group reads the same samples, so that each knows their labels. Those of a mixture's
// sources travel with the sum.
LabelCounts total_labels(const HostBatch& batch, Mesh& mesh) {
  LabelCounts labels = batch.label_counts();
  ShortList<std::int64_t, most_sources + 2> sums{labels.main, labels.tokens};
  sums.insert(sums.end(), labels.sources.begin(), labels.sources.end());
  mesh.data().sum_host({sums.begin(), sums.size()});
  labels.main = sums[0];
  labels.tokens = sums[1];
  std::copy(sums.begin() + 2, sums.end(), labels.sources.begin());
  if (!labels.mtp.empty()) mesh.data().sum_host(labels.mtp);
  return labels;
}

SampleStream stream_behind(const TrainingData& data, const RunSetup& setup, const SpikeState& spikes) {
  SampleStream stream = data.stream(setup);
  stream.exclude(spikes.excluded);
  if (!spikes.excluded.empty()) stream.check_ends(setup.deck.train.steps, setup.batches);
  return stream;
}

}  // namespace

FirstBatch::FirstBatch(const RunSetup& setup, const TrainingData& data, Mesh& mesh)
    : loader(data.stream(setup), batch_share(setup), 1, 1, setup.rows()),
      batch(loader.next()),
      labels(total_labels(batch, mesh)) {}

template <class T>
Trainer<T>::Trainer(Session<T>& session, const TrainingData& data, double peak_flops, TrainingLog log,
                    const RunProgress& start, Checkpoints<T>* checkpoints, const World* world)
    : session_(session),
      log_(log),
      optimizer_(session.storage(), session.setup().deck.optimizer, session.update_tools()),
      stream_(stream_behind(data, session.setup(), start.spikes)),
      loader_(std::in_place, stream_, batch_share(session.setup()), start.step + 1, train().steps,
              session.setup().rows()),
      validations_(session, data, log, checkpoints, world ? &world->watchdog() : nullptr),
      peak_flops_(peak_flops),
      flops_per_token_(training_flops_per_token(session.setup().spec, session.setup().units, train().sequence_tokens)),
      checkpoints_(checkpoints),
      watchdog_(world ? &world->watchdog() : nullptr),
      first_(start.step + 1),
      lines_(first_, train().steps, session.setup().deck.output.every_steps),
      updates_(start.updates),
      bad_in_a_row_(start.bad_in_a_row),
      busy_cores_(session.stream().threads()),
      slow_ranks_(session.mesh().world(), session.mesh().shape().pp, world),
      gradients_(session, world),
      spikes_(train(), start.spikes) {
  if (train().check_replicas_steps == 0) return;
  replicas_.emplace(session, world);
  if (checkpoints_) checkpoints_->before_saves([this](std::int64_t s) { check_replicas(s, true); });
}

template <class T>
void Trainer<T>::run() {
  if (checkpoints_ && first_ <= train().steps) checkpoints_->before_first_step(first_);
  say_steps_before();
  if (replicas_ && !replicas_->compares())
    log_.say(
        "  replicas  none: each rank is the only one that holds its weights; train.check_replicas_steps has no "
        "effect\n");
  log_.say(step_titles());
  if (first_ == 1 && validations_.due(0)) validate_at_start();
  since_ = PhaseTimers::Clock::now();
  for (std::int64_t s = first_; s <= train().steps; ++s) {
    step(s);
    if (returns_) {
      s = go_back(s);
      continue;
    }
    if (replicas_) check_replicas(s, false);
    StepTimes times{step_seconds_};
    const bool validates = validations_.due(s);
    if (validates) validations_.run(s, times);
    const bool saved = checkpoints_ && checkpoints_->after_step({s, updates_, bad_in_a_row_, "", spikes_.state()},
                                                                times, s == train().steps, watchdog_);
    if (!checkpoints_)
      if (const std::string lost = log_.lost(); !lost.empty()) throw IoFailed(lost);
    if (validates || saved) since_ = PhaseTimers::Clock::now();
  }
}

template <class T>
void Trainer<T>::check_replicas(std::int64_t s, bool saves) {
  enter("replicas");
  const std::string repaired = saves ? replicas_->before_save(s) : replicas_->after_step(s, s == train().steps);
  if (!repaired.empty()) log_.say("  replicas differ; the odd ranks have the numbers of most now:" + repaired + "\n");
  since_ = PhaseTimers::Clock::now();
}

// Of those whose profile was wanted.
template <class T>
void Trainer<T>::say_steps_before() const {
  const std::vector<NumberRange>& profile = session_.setup().deck.output.profile;
  if (const std::int64_t before = numbers_in(profile, 1, first_ - 1); before > 0)
    log_.say("no profile of " + counted(before, "step") + " of output.profile = " + ranges_text(profile) +
             ", before this start\n");
}

// Of the parameters that the run starts with. Where the job leaves meanwhile, it leaves as before the first step.
template <class T>
void Trainer<T>::validate_at_start() {
  StepTimes times;
  validations_.run(0, times);
  if (!checkpoints_) return;
  checkpoints_->add_validation(times);
  if (times.broken_off) checkpoints_->before_first_step(first_);
}

// data → label count → forward and backward → reduce → norm, clip → scalars back to the host → update. On a GPU the
// host reports and prepares the next step while the update runs.
template <class T>
void Trainer<T>::step(std::int64_t s) {
  if (watchdog_) watchdog_->start_step(s, session_.setup().batches.of(s));
  inject_fault(session_.mesh().rank(), s);
  LabelCounts labels;
  BatchFeed feed(next_batch(labels));
  const bool again = gradients_.due(s);
  if (again) {
    enter("gradients of another group");
    gradients_.compute_next(stream_, s, labels);
  }
  enter("gradients");
  if (profiles(s)) session_.timeline().begin(session_.stream());
  if (compares(s)) session_.timeline().begin(session_.stream(), Timeline::Of::waits);
  session_.compute_gradients(feed, s, labels);
  if (compares(s)) session_.timeline().stop();
  if (again) gradients_.compare(s);
  enter("update");
  const StepRates rates = rates_of_step(session_.setup().deck, s);
  StepResult result;
  {
    const auto timer = session_.timers().start(Phase::optimizer);
    const std::int64_t every = session_.setup().deck.output.norms_every_steps;
    result = session_.update(optimizer_, updates_ + 1, rates, labels, every > 0 && s % every == 0,
                             [&](const StepResult& now) { return holds_back(s, now); });
  }
  note_first_step();
  updates_ += result.updated();
  if (result.updated()) spikes_.add(result.loss, result.grad_norm);
  bad_in_a_row_ = result.finite ? 0 : bad_in_a_row_ + 1;
  if (s == first_) {
    peak_bytes_ = static_cast<std::int64_t>(session_.arena().high_water());
    session_.mesh().world().max_host({&peak_bytes_, 1});
  }
  const auto now = PhaseTimers::Clock::now();
  step_seconds_ = std::chrono::duration<double>(now - since_).count();
  since_ = now;
  seconds_ += step_seconds_;
  if (watchdog_) watchdog_->step_done(step_seconds_);
  if (session_.timeline().running()) {
    write_profile_of(s);
    since_ = PhaseTimers::Clock::now();
  }
  enter("report");
  raise_peak(s);
  StepRecord record = record_of(s, result, rates.of(session_.setup().deck.optimizer.learning_rate), labels);
  if (compares(s)) record.computation = slow_ranks_.add(session_.timeline().seconds_between_waits());
  report(record);
}

// Not in the first step of a start, whose computation takes longer.
template <class T>
bool Trainer<T>::compares(std::int64_t s) const {
  const OutputDeck& output = session_.setup().deck.output;
  return session_.mesh().world().size() > 1 && s != first_ && s % output.every_steps == 0 && !holds(output.profile, s);
}

template <class T>
bool Trainer<T>::profiles(std::int64_t s) const {
  const OutputDeck& output = session_.setup().deck.output;
  return holds(output.profile, s) &&
         (output.profile_ranks.empty() || holds(output.profile_ranks, session_.mesh().rank()));
}

template <class T>
void Trainer<T>::raise_peak(std::int64_t s) {
  const double rate = static_cast<double>(session_.setup().tokens_of(s)) / step_seconds_ * flops_per_token_;
  if (rate <= peak_flops_) return;
  peak_flops_ = rate;
  log_.say("  peak      " + format_count(rate) + "FLOP/s from here on: step " + std::to_string(s) + " reached it\n");
}

template <class T>
const HostBatch& Trainer<T>::next_batch(LabelCounts& labels) {
  const auto timer = session_.timers().start(Phase::data);
  const HostBatch& batch = loader_->next();
  enter("labels");
  labels = total_labels(batch, session_.mesh());
  return batch;
}

template <class T>
StepRecord Trainer<T>::record_of(std::int64_t s, const StepResult& result, double rate, const LabelCounts& labels) {
  const RunSetup& setup = session_.setup();
  StepRecord record{result};
  record.step = s;
  record.tokens = setup.tokens_through(s);
  if (!train().batch_ramp.empty()) record.sequences = setup.batches.of(s);
  record.learning_rate = rate;
  record.step_seconds = step_seconds_;
  record.tokens_per_second = static_cast<double>(setup.tokens_of(s)) / step_seconds_;
  record.mfu = record.tokens_per_second * flops_per_token_ / peak_flops_;
  record.peak_bytes = peak_bytes_;
  record.sources = sources_of(s, result, labels);
  record.spike = std::exchange(spike_, returns_ ? spike_ : "");
  if (s == first_ && !returned_ && watchdog_) record.start = watchdog_->start_times();
  return record;
}

template <class T>
std::vector<SourceReport> Trainer<T>::sources_of(std::int64_t s, const StepResult& result,
                                                 const LabelCounts& labels) const {
  std::vector<SourceReport> reports;
  for (std::size_t i = 0; i < stream_.apart(); ++i) {
    const DataSource& source = stream_.sources()[i];
    const std::int64_t samples = stream_.drawn(i, session_.setup().batches.before(s + 1));
    reports.push_back({source.name, result.source_losses[i], labels.sources[i], samples * train().sequence_tokens,
                       static_cast<double>(samples) / static_cast<double>(source.sequence.count)});
  }
  return reports;
}

// Steps take as long as their batches are large.
template <class T>
double Trainer<T>::seconds_left(std::int64_t s) const {
  const BatchSizes& batches = session_.setup().batches;
  const std::int64_t done = batches.before(s + 1);
  return seconds_ / static_cast<double>(done - batches.before(first_)) *
         static_cast<double>(batches.before(train().steps + 1) - done);
}

template <class T>
void Trainer<T>::report(const StepRecord& record) {
  const auto timer = session_.timers().start(Phase::output);
  log_.step(record);
  if (const std::string note = busy_cores_.after_step(); !note.empty()) log_.say(note);
  const std::int64_t s = record.step;
  if (const auto line = lines_.add(record, session_.setup().tokens_of(s)))
    log_.say(step_line(*line, train().steps, seconds_left(s)) + pairs_line(line->pairs) + routers_line(line->routers) +
             sources_line(line->sources) + (line->computation ? slow_ranks_line(line->computation->slow) : ""));
  else
    log_.redraw(step_line(record, train().steps, seconds_left(s)));
  if (!record.spike.empty()) log_.say("            spike: " + record.spike + "\n");
  if (bad_in_a_row_ > 0 && bad_in_a_row_ >= train().max_not_finite_steps)
    throw Error("stopped at step " + std::to_string(s) + ": loss or gradient norm was NaN or Inf in " +
                    counted(bad_in_a_row_, "step") +
                    " in a row (train.max_not_finite_steps); the parameters are those after update " +
                    std::to_string(updates_) + "; try a smaller optimizer.learning_rate, or a longer warm-up",
                ExitCode::not_finite);
}

template <class T>
void Trainer<T>::write_profile_of(std::int64_t s) {
  const auto timer = session_.timers().start(Phase::output);
  const int rank = session_.mesh().rank();
  const std::string path = profile_path(session_.setup().deck.output.directory, s, rank),
                    why = write_profile(path, profile_text(rank, session_.tasks(), session_.timeline().end()));
  if (!why.empty())
    std::fprintf(stderr, "forge: rank %d: no profile of step %lld: %s\n", rank, static_cast<long long>(s), why.c_str());
}

FORGE_INSTANTIATE_CLASS(Trainer);

}  // namespace forge

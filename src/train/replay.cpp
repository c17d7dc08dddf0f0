#include "train/replay.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "core/random.hpp"
#include "core/to_size.hpp"
#include "optim/learning_rate.hpp"
#include "train/batch_feed.hpp"

namespace forge {

namespace {

// What a rank of tp has of the vocabulary. Other tokens would have embeddings of zero, as no other rank adds to the
// sum, and labels without a logit.
Range own_tokens(const RunSetup& setup) {
  const Range all{0, setup.spec.V()}, own = intersection(setup.rows().vocabulary, all);
  return own.empty() ? all : own;
}

// The rank's share of a step with the largest batch.
HostBatch drawn_batch(const RunSetup& setup) {
  HostBatch batch;
  batch.allocate(setup.microbatches, setup.deck.train.microbatch_sequences, setup.deck.train.sequence_tokens,
                 setup.rows());
  BatchFiller filler(setup.deck.train.sequence_tokens, setup.spec.V(), to_size(setup.buffers.sources));
  filler.begin(batch);
  const Range tokens = own_tokens(setup);
  const std::uint64_t key = random_key(setup.deck.train.seed, Purpose::sample_order);
  for (std::int64_t row = 0; row < batch.sequences; ++row) filler.fill_drawn(batch, row, row, key, tokens);
  filler.finish(batch);
  return batch;
}

std::vector<std::pair<std::string, Traffic>> difference(std::vector<std::pair<std::string, Traffic>> after,
                                                        const std::vector<std::pair<std::string, Traffic>>& before) {
  for (std::size_t g = 0; g < after.size(); ++g)
    for (std::size_t c = 0; c < to_size(collective_count); ++c) {
      after[g].second.calls[c] -= before[g].second.calls[c];
      after[g].second.bytes[c] -= before[g].second.bytes[c];
    }
  return after;
}

bool waits(const Task& task) {
  return task.op == TaskOp::wait_parameters || task.op == TaskOp::wait_gradients || task.op == TaskOp::transfer;
}

}  // namespace

std::vector<TaskTime> task_times(const RunSetup& setup, const std::vector<Task>& tasks,
                                 const std::vector<Timeline::Span>& spans) {
  std::vector<TaskTime> times;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (const Timeline::Span& span : spans) {
    if (span.behind) continue;
    const Task& task = tasks[to_size(span.task)];
    const std::pair key(std::string(name_of(task.op)), subject_of(task, setup.share, setup.spec));
    const std::size_t place = places.emplace(key, times.size()).first->second;
    if (place == times.size()) times.push_back({key.first, key.second, 0, 0, 0, waits(task)});
    TaskTime& time = times[place];
    if (span.collective.empty()) ++time.calls;
    (span.collective.empty() ? time.seconds : time.collectives) += span.end - span.start;
  }
  return times;
}

Gaps gaps_of(const std::vector<Timeline::Span>& spans) {
  Gaps gaps;
  double end = -1;
  for (const Timeline::Span& span : spans) {
    if (span.behind || !span.collective.empty()) continue;
    if (end >= 0 && span.start > end) {
      gaps.seconds += span.start - end;
      gaps.longest = std::max(gaps.longest, span.start - end);
    }
    end = std::max(end, span.end);
  }
  return gaps;
}

template <class T>
Replay<T>::Replay(Session<T>& session, ReplayWire& wire)
    : session_(session),
      optimizer_(session.storage(), session.setup().deck.optimizer, session.update_tools()),
      batch_(drawn_batch(session.setup())) {
  const RunSetup& setup = session.setup();
  while (next_ < setup.deck.train.steps && setup.schedule_number(next_) > 0) ++next_;
  for (const auto& memory : session.draw_received(1 / static_cast<double>(batch_.label_count))) wire.keep(memory);
}

template <class T>
ReplayedStep Replay<T>::step() {
  using Clock = std::chrono::steady_clock;
  ReplayedStep done;
  const auto before = session_.mesh().traffic();
  const std::int64_t reads = session_.host_counts().reads();
  const LabelCounts labels = batch_.label_counts();
  session_.stream().synchronize();
  const auto start = Clock::now();
  session_.timeline().begin(session_.stream());
  BatchFeed feed(batch_);
  session_.compute_gradients(feed, next_, labels);
  {
    const auto timer = session_.timers().start(Phase::optimizer);
    const StepResult result =
        session_.update(optimizer_, updates_ + 1, rates_of_step(session_.setup().deck, next_), labels);
    updates_ += result.finite;
  }
  session_.stream().synchronize();
  done.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  done.waits = session_.host_counts().reads() - reads;
  done.spans = session_.timeline().end();
  done.sent = difference(session_.mesh().traffic(), before);
  if (next_ < session_.setup().deck.train.steps) ++next_;
  session_.beat();
  return done;
}

FORGE_INSTANTIATE_CLASS(Replay);

}  // namespace forge

#include <cstdint>

#include "core/error.hpp"
#include "train/trainer.hpp"

namespace forge {

// Ranks' sums may differ in the last place.
template <class T>
bool Trainer<T>::holds_back(std::int64_t s, const StepResult& result) {
  if (!spikes_.watches()) return false;
  const std::string found = spikes_.spike_in(result.loss, result.grad_norm);
  std::int64_t is_one = !found.empty();
  session_.mesh().world().max_host({&is_one, 1});
  if (is_one == 0) return false;
  spike_ = found.empty() ? "by another rank's sums" : found;
  const SpikeAction action = spikes_.action();
  if (action == SpikeAction::log) {
    spike_ += train().spike == SpikeAction::log ? "" : "; train.spike_most updates are left out, this one isn't";
    return false;
  }
  spikes_.add_act();
  if (action == SpikeAction::back) returns_ = ways_back(s);
  spike_ += action == SpikeAction::skip ? "; no update"
            : returns_                  ? "; back to the newest checkpoint"
                                        : "; no update, and no way back";
  return true;
}

template <class T>
std::optional<std::vector<std::string>> Trainer<T>::ways_back(std::int64_t s) {
  std::vector<std::string> candidates = checkpoints_->committed();
  auto count = static_cast<std::int64_t>(candidates.size());
  session_.mesh().world().max_host({&count, 1});
  if (count == 0) return {};
  SampleStream without = stream_;
  std::vector<NumberRange> excluded = stream_.excluded();
  add_places(excluded, places_of(s));
  without.exclude(std::move(excluded));
  try {
    without.check_ends(train().steps, session_.setup().batches);
  } catch (const BadInput&) {
    return {};  // the data would end before the run
  }
  return candidates;
}

template <class T>
std::vector<NumberRange> Trainer<T>::places_of(std::int64_t s) const {
  const BatchSizes& batches = session_.setup().batches;
  return stream_.places(batches.before(s), batches.of(s));
}

template <class T>
std::int64_t Trainer<T>::go_back(std::int64_t s) {
  if (watchdog_) watchdog_->start_other(s, "restart");
  const std::vector<NumberRange> places = places_of(s);
  const RunProgress progress = checkpoints_->go_back(*returns_);
  returns_.reset();
  spikes_.go_back(progress.spikes, places);
  updates_ = progress.updates;
  bad_in_a_row_ = progress.bad_in_a_row;
  stream_.exclude(spikes_.state().excluded);
  loader_.emplace(stream_, batch_share(session_.setup()), progress.step + 1, train().steps, session_.setup().rows());
  log_.go_back(progress.step);
  returned_ = true;
  first_ = progress.step + 1;
  spike_ = "of step " + std::to_string(s) + ": " + spike_;
  lines_ = StepLines(first_, train().steps, session_.setup().deck.output.every_steps);
  seconds_ = 0;
  since_ = PhaseTimers::Clock::now();
  return progress.step;
}

#define FORGE_INSTANTIATE(T)                                                            \
  template bool Trainer<T>::holds_back(std::int64_t, const StepResult&);                \
  template std::optional<std::vector<std::string>> Trainer<T>::ways_back(std::int64_t); \
  template std::vector<NumberRange> Trainer<T>::places_of(std::int64_t) const;          \
  template std::int64_t Trainer<T>::go_back(std::int64_t);
FORGE_COMPUTE_TYPES(FORGE_INSTANTIATE)
#undef FORGE_INSTANTIATE

}  // namespace forge

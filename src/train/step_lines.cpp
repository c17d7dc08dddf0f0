#include "train/step_lines.hpp"

namespace forge {

std::optional<StepRecord> StepLines::add(const StepRecord& step, std::int64_t tokens, Clock::time_point now) {
  if (!said_) said_ = now;
  count(step, tokens);
  const bool shown = step.step < first_ + first_steps || step.step == last_ || step.step % every_ == 0 ||
                     !step.updated() || now - *said_ >= longest_silence;
  if (!shown) return {};
  const StepRecord line = take(step);
  *this = StepLines(first_, last_, every_);
  said_ = now;
  return line;
}

void StepLines::count(const StepRecord& step, std::int64_t tokens) {
  seconds_ += step.step_seconds;
  tokens_ += tokens;
  if (!step.updated()) return;
  losses_ += step.loss;
  ++updates_;
  if (step.pairs) pairs_.margin += step.pairs->margin, pairs_.accuracy += step.pairs->accuracy;
  sources_.resize(step.sources.size());
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (step.sources[i].labels == 0) continue;
    sources_[i].loss += step.sources[i].loss * static_cast<double>(step.sources[i].labels);
    sources_[i].labels += step.sources[i].labels;
  }
}

// A step without an update shows its own loss.
StepRecord StepLines::take(const StepRecord& step) const {
  StepRecord line = step;
  if (step.updated()) {
    const auto updates = static_cast<double>(updates_);
    line.loss = losses_ / updates;
    if (line.pairs) line.pairs = {pairs_.margin / updates, pairs_.accuracy / updates};
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      line.sources[i].labels = sources_[i].labels;
      line.sources[i].loss = sources_[i].loss / static_cast<double>(sources_[i].labels);
    }
  }
  const double speed = static_cast<double>(tokens_) / seconds_;
  line.mfu = step.mfu / step.tokens_per_second * speed;
  line.tokens_per_second = speed;
  return line;
}

}  // namespace forge

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/metrics.hpp"

namespace forge {

// The steps shown in the log: the first ones of a start, every so many, one whenever nothing was shown for ten seconds,
// the last one, and those without an update. Loss and speed are means since the line before.
class StepLines {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t first_steps = 5;
  static constexpr std::chrono::seconds longest_silence{10};

  StepLines(std::int64_t first, std::int64_t last, std::int64_t every) : first_(first), last_(last), every_(every) {}

  // To be called behind each step, which trained on so many tokens. The record that its line shows, if it has one.
  std::optional<StepRecord> add(const StepRecord& step, std::int64_t tokens, Clock::time_point now = Clock::now());

 private:
  void count(const StepRecord& step, std::int64_t tokens);
  StepRecord take(const StepRecord& step) const;

  struct Source {
    double loss = 0;  // times labels
    std::int64_t labels = 0;
  };
  std::int64_t first_, last_, every_;
  std::optional<Clock::time_point> said_;
  double seconds_ = 0, losses_ = 0;
  std::int64_t tokens_ = 0, updates_ = 0;
  std::vector<Source> sources_;
  PairReport pairs_;  // sums
};

}  // namespace forge

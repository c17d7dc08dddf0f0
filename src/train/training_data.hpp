#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/heartbeat.hpp"
#include "data/choice_task.hpp"
#include "data/sample_stream.hpp"
#include "data/token_set.hpp"
#include "plan/setup.hpp"

namespace forge {

// The data of a run: training files, by source, and held-out sets where the deck names some.
struct TrainingData {
  // Opens all files, then plans packed samples; one BadInput lists the errors of all of them.
  explicit TrainingData(const RunSetup& setup, Heartbeat* heartbeat = nullptr);
  // Checks for a training, before anything is written: wrong files (another vocabulary, another dtype) mostly show in
  // the first sample, and each source must last for the steps. One BadInput lists the errors.
  void check(const RunSetup& setup) const;
  // The sample at each place. The data must live longer than the stream.
  SampleStream stream(const RunSetup& setup) const;
  // Sums over all sources.
  std::int64_t tokens() const { return sum(&TokenSet::tokens); }
  std::int64_t samples() const { return sum(&TokenSet::samples); }
  // For the log: how much each source gives, and how full packed samples are.
  std::vector<std::string> lines(const RunSetup& setup) const;

  std::vector<std::unique_ptr<TokenSet>> training;  // of each source; one where the deck has no mixture
  // The held-out sets, in the deck's order.
  struct HeldOut {
    ValidationDeck deck;
    std::unique_ptr<TokenSet> tokens;
  };
  std::vector<HeldOut> validation;
  std::vector<ChoiceTask> tasks;  // of data.tasks
  // Bytes of each id's text, where they are known: validations then report bits per byte. Else empty.
  std::vector<std::int64_t> token_bytes;  // (V)

 private:
  std::int64_t sum(std::int64_t (TokenSet::*count)() const) const;
};

}  // namespace forge

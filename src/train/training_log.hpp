#pragma once

#include <string>
#include <vector>

#include "train/metrics.hpp"
#include "train/run_directory.hpp"

namespace forge {

// What the training loop tells the outside: the log and metrics of the one rank that has a run directory, and the
// records of all steps for whoever asks for them. Both may be null.
class TrainingLog {
 public:
  explicit TrainingLog(RunDirectory* directory, std::vector<StepRecord>* records = nullptr)
      : directory_(directory), records_(records) {}
  // To the screen and log.txt.
  void say(const std::string& text) const;
  void metrics(const std::string& line) const;
  void step(const StepRecord& record) const;
  // RunDirectory::sync and lost.
  void sync() const;
  std::string lost() const;

 private:
  void say_news() const;  // of files that can't be written

  RunDirectory* directory_;
  std::vector<StepRecord>* records_;
};

}  // namespace forge

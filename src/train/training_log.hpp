#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "train/metrics.hpp"
#include "train/run_directory.hpp"
#include "train/screen.hpp"

namespace forge {

// The seconds of a run over all of its starts: this start's, behind the earlier ones'.
struct RunClock {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double before = 0;
};

// The training loop's output: the log and metrics of the one rank that has a run directory, and the records of all
// steps for whoever asks for them. Both may be null.
class TrainingLog {
 public:
  explicit TrainingLog(RunDirectory* directory, std::vector<StepRecord>* records = nullptr, RunClock clock = {})
      : directory_(directory),
        records_(records),
        clock_(clock),
        screen_(directory ? std::make_shared<Screen>() : nullptr) {}
  // Writes to the screen and log.txt. A screen that is gone, or full, is left out from then on.
  void say(const std::string& text) const;
  // Writes to a screen that is a terminal, in the place of the line before.
  void redraw(const std::string& line) const;
  // To be called behind the last of such lines, before others than this log write.
  void clear() const;
  // Writes to log.txt alone.
  void note(const std::string& text) const;
  void step(StepRecord record) const;
  void validation(std::int64_t step, const ValidationRecord& record) const;
  void task(std::int64_t step, const TaskRecord& record) const;
  // RunDirectory::go_back.
  void go_back(std::int64_t step) const;
  // A text of the run for trackers: "deck", "sample".
  void text(std::int64_t step, const std::string& name, const std::string& text) const;
  // RunDirectory::sync and lost.
  void sync() const;
  std::string lost() const;
  // RunDirectory::finish, and its messages.
  void finish(Heartbeat& heartbeat) const;

 private:
  Tensorboard* tensorboard() const { return directory_ ? directory_->tensorboard() : nullptr; }
  void metrics(const std::string& line) const;
  void say_news() const;  // of files that can't be written
  void print(const std::string& text) const;
  void say_lost(const std::string& why) const;  // of the screen
  double elapsed() const;

  RunDirectory* directory_;
  std::vector<StepRecord>* records_;
  RunClock clock_;
  std::shared_ptr<Screen> screen_;  // where there is a directory; of all copies
};

}  // namespace forge

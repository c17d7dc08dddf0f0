#pragma once

#include <cstdint>
#include <string>

#include "train/log_file.hpp"
#include "train/metrics.hpp"

namespace forge {

// Facts in event files besides metrics.jsonl.
struct TensorboardOptions {
  std::int64_t histogram_steps = 1;  // between two histograms of experts' load
  bool balance_forced = false;
  std::int64_t sequences = 0;  // of a step whose record has no number of its own
};

// Steps between histograms: the log's steps, but at most 500 of a run, as many as TensorBoard shows.
std::int64_t histogram_steps(std::int64_t every_steps, std::int64_t steps);

// The event file of one start of a job, in a directory that may have earlier ones': it grows with
// metrics.jsonl. TensorBoard reads the files by their names, which ascend.
class Tensorboard {
 public:
  explicit Tensorboard(const TensorboardOptions& options) : options_(options) {}

  // Makes directory and file; of earlier files steps behind `step` count no more. Throws IoFailed.
  void open(const std::string& directory, std::int64_t step);
  void step(const StepRecord& record);
  // For a set that has labels.
  void validation(double time, std::int64_t step, const ValidationRecord& record);
  void task(double time, std::int64_t step, const TaskRecord& record);
  void text(double time, std::int64_t step, const std::string& tag, const std::string& text);
  LogFile& file() { return file_; }

 private:
  TensorboardOptions options_;
  LogFile file_;
};

}  // namespace forge

#include "train/training_log.hpp"

#include <cstdio>

namespace forge {

void TrainingLog::say(const std::string& text) const {
  if (!directory_) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  directory_->log(text);
}

void TrainingLog::metrics(const std::string& line) const {
  if (directory_) directory_->metrics(line);
}

void TrainingLog::step(const StepRecord& record) const {
  metrics(to_json(record));
  if (records_) records_->push_back(record);
}

}  // namespace forge

#include "train/training_log.hpp"

#include <cstdio>

namespace forge {

void TrainingLog::say(const std::string& text) const {
  if (!directory_) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  directory_->log(text);
  say_news();
}

void TrainingLog::metrics(const std::string& line) const {
  if (!directory_) return;
  directory_->metrics(line);
  say_news();
}

void TrainingLog::say_news() const {
  std::fputs(directory_->take_news().c_str(), stdout);
  std::fflush(stdout);
}

void TrainingLog::sync() const {
  if (directory_) directory_->sync();
}

std::string TrainingLog::lost() const {
  return directory_ ? directory_->lost() : "";
}

void TrainingLog::step(const StepRecord& record) const {
  metrics(to_json(record));
  if (records_) records_->push_back(record);
}

}  // namespace forge

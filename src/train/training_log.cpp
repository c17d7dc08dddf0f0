#include "train/training_log.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/json.hpp"

namespace forge {

namespace {

// Nobody needs more than milliseconds.
double rounded(double seconds) {
  return std::round(seconds * 1000) / 1000;
}

double now() {
  return rounded(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
}

}  // namespace

double TrainingLog::elapsed() const {
  return rounded(clock_.before +
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - clock_.begin).count());
}

// The error stays with stdout: the end of the job asks for it.
void TrainingLog::print(const std::string& text) const {
  if (text.empty() || std::ferror(stdout)) return;
  errno = 0;
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  const std::string news =
      std::string("standard output can't be written: ") + std::strerror(errno) + "; the job goes on, see log.txt\n";
  std::fputs(("forge: " + news).c_str(), stderr);
  directory_->log(news);
}

void TrainingLog::say(const std::string& text) const {
  if (!directory_) return;
  print(text);
  directory_->log(text);
  say_news();
}

void TrainingLog::note(const std::string& text) const {
  if (directory_) directory_->log(text);
}

void TrainingLog::metrics(const std::string& line) const {
  if (!directory_) return;
  directory_->metrics(line);
  say_news();
}

void TrainingLog::say_news() const {
  print(directory_->take_news());
}

void TrainingLog::sync() const {
  if (directory_) directory_->sync();
}

std::string TrainingLog::lost() const {
  return directory_ ? directory_->lost() : "";
}

void TrainingLog::step(StepRecord record) const {
  record.time = now();
  record.elapsed_seconds = elapsed();
  metrics(to_json(record));
  if (Tensorboard* const board = tensorboard()) board->step(record);
  if (records_) records_->push_back(record);
}

void TrainingLog::validation(std::int64_t step, double loss, std::int64_t labels) const {
  JsonLine line;
  line.add("step", step).add("time", now()).add("elapsed_seconds", elapsed());
  if (labels > 0) line.add("validation_loss", loss).add("validation_perplexity", std::exp(loss));
  metrics(line.add("validation_labels", labels).text());
  if (Tensorboard* const board = tensorboard(); board && labels > 0) board->validation(now(), step, "", loss);
}

void TrainingLog::text(std::int64_t step, const std::string& name, const std::string& text) const {
  if (Tensorboard* const board = tensorboard()) board->text(now(), step, name, text);
}

}  // namespace forge

#include "train/training_log.hpp"

#include <cmath>
#include <cstdio>

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

void TrainingLog::print(const std::string& text) const {
  say_lost(screen_->print(text));
}

void TrainingLog::say_lost(const std::string& why) const {
  if (why.empty()) return;
  const std::string news = "standard output can't be written: " + why + "; the job goes on, see log.txt\n";
  std::fputs(("forge: " + news).c_str(), stderr);
  directory_->log(news);
}

void TrainingLog::redraw(const std::string& line) const {
  if (directory_) say_lost(screen_->redraw(line));
}

void TrainingLog::say(const std::string& text) const {
  if (!directory_) return;
  print(text);
  directory_->log(text);
  say_news();
}

void TrainingLog::clear() const {
  if (directory_) say_lost(screen_->clear());
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

void TrainingLog::go_back(std::int64_t step) const {
  if (directory_) directory_->go_back(step);
  if (records_) std::erase_if(*records_, [&](const StepRecord& record) { return record.step > step; });
}

void TrainingLog::sync() const {
  if (directory_) directory_->sync();
}

std::string TrainingLog::lost() const {
  return directory_ ? directory_->lost() : "";
}

void TrainingLog::finish(Heartbeat& heartbeat) const {
  if (!directory_) return;
  directory_->finish(&heartbeat);
  say_news();
}

void TrainingLog::step(StepRecord record) const {
  record.time = now();
  record.elapsed_seconds = elapsed();
  metrics(to_json(record));
  if (Tensorboard* const board = tensorboard()) board->step(record);
  if (records_) records_->push_back(record);
}

void TrainingLog::validation(std::int64_t step, const ValidationRecord& v) const {
  JsonLine line;
  line.add("step", step).add("time", now()).add("elapsed_seconds", elapsed());
  if (!v.set.empty()) line.add("set", v.set);
  if (v.labels > 0) line.add("validation_loss", v.loss);
  if (v.labels > 0 && !v.pairs) line.add("validation_perplexity", std::exp(v.loss));
  if (v.pairs)
    line.add("validation_reward_margin", v.pairs->margin).add("validation_reward_accuracy", v.pairs->accuracy);
  if (v.labels > 0 && v.bits_per_byte) line.add("validation_bits_per_byte", *v.bits_per_byte);
  metrics(line.add("validation_labels", v.labels).text());
  if (Tensorboard* const board = tensorboard(); board && v.labels > 0) board->validation(now(), step, v);
}

void TrainingLog::task(std::int64_t step, const TaskRecord& t) const {
  JsonLine line;
  line.add("step", step).add("time", now()).add("elapsed_seconds", elapsed()).add("set", t.task);
  line.add("validation_accuracy", t.accuracy).add("validation_accuracy_normalised", t.normalised);
  metrics(line.add("validation_questions", t.questions).text());
  if (Tensorboard* const board = tensorboard()) board->task(now(), step, t);
}

void TrainingLog::text(std::int64_t step, const std::string& name, const std::string& text) const {
  if (Tensorboard* const board = tensorboard()) board->text(now(), step, name, text);
}

}  // namespace forge

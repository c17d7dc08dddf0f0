#include "train/tensorboard.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/bytes.hpp"
#include "core/error.hpp"
#include "train/tensorboard_event.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

constexpr const char* beginning = "events.out.tfevents.";

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Of a name "events.out.tfevents.1795916806.n1.1234.0"; 0: it is another one.
std::int64_t seconds_of(const std::string& name) {
  std::int64_t seconds = 0;
  if (name.starts_with(beginning))
    std::from_chars(name.data() + std::string(beginning).size(), name.data() + name.size(), seconds);
  return seconds;
}

// Behind the names of all files that are there.
std::string new_name(const fs::path& directory) {
  std::int64_t seconds = seconds_now();
  for (const auto& entry : fs::directory_iterator(directory))
    seconds = std::max(seconds, seconds_of(entry.path().filename()) + 1);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return beginning + formatted("%010lld", static_cast<long long>(seconds)) + "." + host + "." +
         std::to_string(::getpid()) + ".0";
}

}  // namespace

std::int64_t histogram_steps(std::int64_t every_steps, std::int64_t steps) {
  constexpr std::int64_t most = 500;
  return every_steps * std::max<std::int64_t>(1, (steps + most * every_steps - 1) / (most * every_steps));
}

void Tensorboard::open(const std::string& directory, std::int64_t step) {
  const double now = static_cast<double>(seconds_now());
  try {
    fs::create_directories(directory);
    file_.open(directory + "/" + new_name(directory));
  } catch (const fs::filesystem_error& error) {
    throw IoFailed("output.tensorboard: " + directory + ": " + error.code().message());
  }
  file_.write(TensorboardEvent(now, 0).file_version().record() +
              TensorboardEvent(now, step + 1).session_start().record());
}

void Tensorboard::step(const StepRecord& r) {
  TensorboardEvent event(r.time, r.step);
  event.scalar("train/loss", r.loss).scalar("train/total_loss", r.total_loss);
  if (r.mtp_loss) event.scalar("train/mtp_loss", *r.mtp_loss);
  if (r.pairs) event.scalar("train/reward_margin", r.pairs->margin).scalar("train/reward_accuracy", r.pairs->accuracy);
  event.scalar("train/grad_norm", r.grad_norm).scalar("train/learning_rate", r.learning_rate);
  event.scalar("train/tokens", static_cast<double>(r.tokens)).scalar("train/hours", r.elapsed_seconds / 3600);
  event.scalar("train/skipped", r.updated() ? 0 : 1);
  if (r.logits)
    event.scalar("train/largest_logit", r.logits->largest)
        .scalar("train/clipped_heads", static_cast<double>(r.logits->clipped_heads));
  for (const SourceReport& source : r.sources) {
    const std::string of = "sources/" + source.name;
    if (source.labels > 0) event.scalar(of + "/loss", source.loss);
    event.scalar(of + "/tokens", static_cast<double>(source.tokens)).scalar(of + "/epochs", source.epochs);
  }
  for (const NormReport& unit : r.norms)
    event.scalar("norms/" + unit.unit + "/weights", unit.weights).scalar("norms/" + unit.unit + "/update", unit.update);
  event.scalar("perf/tokens_per_second", r.tokens_per_second).scalar("perf/mfu", r.mfu);
  event.scalar("perf/step_seconds", r.step_seconds).scalar("perf/peak_bytes", static_cast<double>(r.peak_bytes));
  event.scalar("perf/sequences", static_cast<double>(r.sequences.value_or(options_.sequences)));
  if (r.computation)
    event.scalar("perf/computation_seconds", r.computation->median)
        .scalar("perf/slow_ranks", static_cast<double>(r.computation->slow.size()));
  double dropped = 0, most = 0, least = INFINITY, entropy = 0, balance = 0;
  for (const RouterReport& router : r.routers) {
    dropped += router.dropped_fraction() / static_cast<double>(r.routers.size());
    entropy += router.entropy() / static_cast<double>(r.routers.size());
    balance += router.balance_loss / static_cast<double>(r.routers.size());
    most = std::max(most, router.load_max());
    least = std::min(least, router.load_min());
    if (r.step % options_.histogram_steps == 0)
      event.histogram("experts/load/layer_" + std::to_string(router.layer), router.load);
  }
  if (!r.routers.empty()) {
    event.scalar("perf/dropped_share", dropped).scalar("perf/forced_balance", options_.balance_forced ? 1 : 0);
    event.scalar("experts/load_max", most).scalar("experts/load_min", least).scalar("experts/entropy", entropy);
    event.scalar("experts/balance_loss", balance);
  }
  file_.write(event.record());
}

void Tensorboard::validation(double time, std::int64_t step, const ValidationRecord& v) {
  const std::string tag = "validation/" + (v.set.empty() ? "" : v.set + "/");
  TensorboardEvent event(time, step);
  event.scalar(tag + "loss", v.loss);
  if (v.pairs)
    event.scalar(tag + "reward_margin", v.pairs->margin).scalar(tag + "reward_accuracy", v.pairs->accuracy);
  else
    event.scalar(tag + "perplexity", std::exp(v.loss));
  if (v.bits_per_byte) event.scalar(tag + "bits_per_byte", *v.bits_per_byte);
  file_.write(event.record());
}

void Tensorboard::task(double time, std::int64_t step, const TaskRecord& t) {
  const std::string tag = "validation/" + t.task + "/";
  file_.write(TensorboardEvent(time, step)
                  .scalar(tag + "accuracy", t.accuracy)
                  .scalar(tag + "accuracy_normalised", t.normalised)
                  .record());
}

void Tensorboard::text(double time, std::int64_t step, const std::string& tag, const std::string& text) {
  file_.write(TensorboardEvent(time, step).text(tag, text).record());
}

}  // namespace forge

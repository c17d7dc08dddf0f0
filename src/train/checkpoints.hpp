#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/save.hpp"
#include "checkpoint/storage_state.hpp"
#include "comm/watchdog.hpp"
#include "train/leaving.hpp"
#include "train/session.hpp"
#include "train/spikes.hpp"
#include "train/training_log.hpp"

namespace forge {

// How far a run has come.
struct RunProgress {
  std::int64_t step = 0;          // the last step done
  std::int64_t updates = 0;       // of the parameters: steps with NaN or Inf make none
  std::int64_t bad_in_a_row = 0;  // steps with NaN or Inf, up to this one
  std::string from = {};          // the checkpoint behind which this start goes on; "": none
  SpikeState spikes = {};
};

// All that a checkpoint holds of a session, as this rank writes or needs it. Further state (biases of routers) is
// appended here, as tensors of a group of their own.
template <class T>
std::vector<StateTensor> session_state(Session<T>& session, StateUse use, StateParts parts = {});
// The routers' biases in this state: (layers, E) of all layers, empty where the model has none.
template <class A>
std::vector<StateTensor> bias_state(const ModelSpec& spec, const View<A, 2>& biases);
// The history of the recipe that has one: (blocks, products and their tensors, steps); empty with another recipe.
std::vector<StateTensor> amax_history_state(const ModelSpec& spec, const AmaxHistory& history);
// The deck's keys that would be legal, where a checkpoint has the history's tensor in another shape, or not at all
// (null); "" of other tensors.
std::string legal_history(const std::string& name, const Extents* stored);

// Seconds of the last step, and of the validation behind it (0: there was none, or it was broken off).
struct StepTimes {
  double step = 0, validation = 0;
  bool broken_off = false;
};

// When a run saves: every so many steps or seconds, at the end, on a signal, before the job's time limit.
template <class T>
class Checkpoints {
 public:
  // Collective. The deck has a checkpoint.directory. `facts`: the resolved deck, the build and the data_fingerprint.
  // `lock`: the directory's lock, of the first rank, where there is one.
  Checkpoints(Session<T>& session, CheckpointFacts facts, TrainingLog log, DirectoryLock* lock = nullptr);

  // Before the first step; all ranks. Throws LeftOnSignal on all ranks when a signal arrived during the start, or the
  // ranks have agreed to leave: run and checkpoint are unchanged.
  void before_first_step(std::int64_t step);
  // A function that all ranks call before a step is saved; it may throw.
  void before_saves(std::function<void(std::int64_t step)> f) { before_save_ = std::move(f); }
  // Microbatches of each validation: the time of the first one is estimated from the steps.
  void expect_validations(std::int64_t microbatches) { validation_microbatches_ = microbatches; }
  // Adds the time of a validation, if it wasn't broken off; after_step() itself adds those behind a step.
  void add_validation(const StepTimes& times) {
    if (times.validation > 0) validations_.add(times.validation);
  }
  // Whether the job leaves, for work that may be broken off.
  Leaving& leaving() { return leaving_; }
  // Seconds of the save before it leaves, as far as is known: the longest of the last hour; before the first one, an
  // estimate.
  double seconds_to_save() const;
  // The checkpoints that the run can go back to, the newest first: those of checkpoint.directory, behind the one being
  // written; of the first rank, the others have none. All ranks.
  std::vector<std::string> committed();
  // Loads the first whole one of them, and prints it. All ranks; throws as restart() (train/restart.hpp) does.
  RunProgress go_back(const std::vector<std::string>& candidates);
  // After each step, `last` after the run's last one; all ranks. Saves where it is time, and prints it. Throws
  // LeftOnSignal on all ranks when the step is saved and the job shall end (at the last step, when its validation was
  // broken off), IoFailed where saving failed and the deck says to stop, or where it was the last save; where saving
  // behind the steps fails, the process ends then and there (core/last_words.hpp).
  bool after_step(const RunProgress& progress, const StepTimes& times, bool last, Watchdog* watchdog = nullptr);

 private:
  using Clock = std::chrono::steady_clock;
  bool due(const RunProgress& progress, bool last);
  bool leaves() const { return lost_ || leaving_.agreed(); }
  double seconds_of_next_step(std::int64_t step) const;
  CheckpointFacts facts_of(const RunProgress& progress) const;
  bool save(const RunProgress& progress, bool leaves, bool last);
  void write(const RunProgress& progress, bool wait);
  template <class F>
  bool attempt(bool stops, F saves);
  void say_notes();
  SavePlan plan(DirectoryLock* lock);
  void say_space() const;
  void failed_behind() const;
  const CheckpointDeck& deck() const { return session_.setup().deck.checkpoint; }

  Session<T>& session_;
  CheckpointFacts facts_;  // deck, build and data, which every checkpoint of a run says about it
  TrainingLog log_;
  Leaving leaving_;
  std::function<void(std::int64_t)> before_save_;
  bool lost_ = false;  // the metrics are lost; on all ranks
  std::int64_t validation_microbatches_ = 0;
  std::atomic<bool> leaves_{false};  // the job leaves: it saves once more
  CheckpointSaver saver_;
  Clock::time_point last_save_ = Clock::now();
  std::map<std::int64_t, RecentTimes> steps_;  // by their sequences
  RecentTimes validations_;
};

}  // namespace forge

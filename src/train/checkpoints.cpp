#include "train/checkpoints.hpp"

#include <algorithm>
#include <string_view>

#include "checkpoint/directory.hpp"
#include "config/optimizer_table.hpp"
#include "core/batch_seconds.hpp"
#include "core/bytes.hpp"
#include "core/file_errors.hpp"
#include "core/last_words.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "nn/units.plan.hpp"
#include "train/restart.hpp"
#include "train/stop_request.hpp"

namespace forge {

template <class A>
std::vector<StateTensor> bias_state(const ModelSpec& spec, const View<A, 2>& biases) {
  std::vector<StateTensor> tensors;
  if (biases.empty()) return tensors;
  const Extents shape{spec.E()};
  for (const RouterBias& bias : router_biases(spec))
    tensors.push_back({"state/" + bias.name,
                       dtype_of<A>,
                       shape,
                       0,
                       {{{{0}, shape}, reinterpret_cast<std::byte*>(biases.row(bias.layer))}}});
  return tensors;
}

namespace {

// Tensors of what the optimizer keeps of matrices: with their owners, or of rows and columns with all ranks that share
// them. Of experts' tensors each has the index E before it.
template <class T>
class MatrixStates {
 public:
  explicit MatrixStates(Session<T>& session) : session_(session), share_(session.setup().share) {}

  std::vector<StateTensor> state(StateUse use) {
    if (session_.line_moments().empty()) return {};
    // Owners of whole matrices write them, of the first replica.
    for (const MatrixRound& round : share_.matrices.rounds)
      for (const MatrixStack& stack : round.stacks) add_stack(stack, use);
    for (std::size_t u = 0; u < share_.factored.units.size(); ++u) {
      const FactoredUnit& unit = share_.factored.units[u];
      if (use == StateUse::write && !unit.writes) continue;
      for (const FactoredTensor& tensor : unit.tensors)
        if (tensor.is_matrix()) add_shared(u, tensor, unit.first_moment + tensor.moments);
    }
    return gathered_.take();
  }

 private:
  void add_stack(const MatrixStack& stack, StateUse use) {
    for (std::size_t i = 0; i < stack.matrices.size(); ++i) {
      const OwnedMatrix& matrix = stack.matrices[i];
      if (use == StateUse::write && share_.units[matrix.unit].zero.replica != 0) continue;
      const std::int64_t at = stack.first_kept + static_cast<std::int64_t>(i) * stack.kept();
      for (const MatrixState::Part& part : stack.state.parts)
        if (part.elements > 0)
          add(*part.spec, matrix.unit, matrix.parameter, {matrix.first_row, matrix.first_row + stack.rows},
              at + part.at);
    }
  }
  // Of a tensor, one state behind the other.
  void add_shared(std::size_t unit, const FactoredTensor& tensor, std::int64_t at) {
    for (const StateSpec& spec : row_of(session_.setup().deck.optimizer.name).states) {
      if (spec.owner != StateOwner::sharers) continue;
      add(spec, unit, tensor.parameter, {0, tensor.rows}, at);
      at += elements_of(spec.shape, tensor.rows, tensor.columns);
    }
  }
  // A state of a matrix, which is rows of a tensor, from `at` of the rank's on.
  void add(const StateSpec& spec, std::size_t unit, std::size_t parameter, const Range& rows, std::int64_t at) {
    const StatePlace place =
        place_of_state(spec, share_.units[unit].parameters[parameter], session_.setup().spec.E(), rows);
    gathered_.add({place.name, dtype_of<acc_t<T>>, place.shape, 0, {}},
                  {place.box, reinterpret_cast<std::byte*>(session_.line_moments().data + at)});
  }

  Session<T>& session_;
  const RankShare& share_;
  StateTensors gathered_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

template <class T>
std::vector<StateTensor> session_state(Session<T>& session, StateUse use, StateParts parts) {
  const RunSetup& setup = session.setup();
  std::vector<StateTensor> tensors = state_of(session.storage(), setup.spec.E(), use, parts);
  if (parts.optimizer)
    for (StateTensor& tensor : MatrixStates(session).state(use)) tensors.push_back(std::move(tensor));
  // Every rank has the biases of all layers, and the history of amaxes; the first one writes them.
  if (!parts.parameters || (use == StateUse::write && session.mesh().rank() != 0)) return tensors;
  for (StateTensor& tensor : bias_state(setup.spec, session.routers().biases())) tensors.push_back(std::move(tensor));
  if (parts.amax_history)
    for (StateTensor& tensor : amax_history_state(setup.spec, session.amax_history()))
      tensors.push_back(std::move(tensor));
  return tensors;
}

template <class T>
Checkpoints<T>::Checkpoints(Session<T>& session, CheckpointFacts facts, TrainingLog log, DirectoryLock* lock)
    : session_(session),
      facts_(std::move(facts)),
      log_(log),
      leaving_(session.mesh().world(), static_cast<double>(deck().end_margin_seconds)),
      saver_(session.mesh().world(), plan(lock), deck().asynchronous) {
  say_space();
}

// Before the first step, of what would else be heard of at the first save.
template <class T>
void Checkpoints<T>::say_space() const {
  auto needed = static_cast<std::int64_t>(bytes_of(session_state(session_, StateUse::write)));
  session_.mesh().world().sum_host({&needed, 1});
  const std::int64_t free = session_.mesh().world().rank() == 0 ? free_bytes_at(deck().directory) : -1;
  if (free >= 0 && free < needed)
    log_.say("warning: checkpoint.directory " + deck().directory + " has " + format_bytes(to_size(free)) +
             " free, a checkpoint needs " + format_bytes(to_size(needed)) + "\n");
}

template <class T>
SavePlan Checkpoints<T>::plan(DirectoryLock* lock) {
  SavePlan plan{.directory = deck().directory,
                .keep_last = deck().keep_last,
                .keep_every = deck().keep_every_steps,
                // On CPUs the steps have all cores to themselves otherwise.
                .rests = std::string_view(device_info().kind) != "cuda",
                .lock = lock,
                .before_commit = [this] { log_.sync(); },
                .failed_behind = [this] { failed_behind(); }};
  plan.shards.heartbeat = session_.heartbeat();
  return plan;
}

// Of what ends the job the next save would hear too late.
template <class T>
void Checkpoints<T>::failed_behind() const {
  try {
    throw;
  } catch (const IoFailed&) {
    if (deck().stop_on_failure && !leaves_) LastWords::speak_now();
  } catch (...) {
    LastWords::speak_now();
  }
}

template <class T>
double Checkpoints<T>::seconds_to_save() const {
  if (const double longest = saver_.longest_seconds(); longest > 0) return 2 * longest;
  constexpr double bytes_per_second = 100e6;  // of a rank
  const Arena& arena = session_.arena();
  const auto bytes = arena.at_high_water(Category::parameters) + arena.at_high_water(Category::optimizer);
  return std::min(static_cast<double>(bytes) / bytes_per_second, leaving_.most_of_estimates());
}

// With its validation, each as long as at worst (RecentTimes). Forward is less than half of a step; no estimate takes
// all of the time that a job has, or it would never train.
template <class T>
double Checkpoints<T>::seconds_of_next_step(std::int64_t step) const {
  const RunSetup& setup = session_.setup();
  const TrainDeck& train = setup.deck.train;
  const std::int64_t sequences = setup.batches.of(step + 1);
  const double next = seconds_of_batch(steps_, sequences, [](const RecentTimes& times) { return times.longest(); });
  const bool validates = validation_microbatches_ > 0 && step < train.steps &&
                         ((step + 1) % train.validate_every_steps == 0 || step + 1 == train.steps);
  if (!validates) return next;
  if (const double longest = validations_.longest(); longest > 0) return next + longest;
  const auto microbatches =
      static_cast<double>(sequences) / static_cast<double>(setup.replicas() * train.microbatch_sequences);
  const double validation = next / 2 / microbatches * static_cast<double>(validation_microbatches_);
  return next + std::min(validation, leaving_.most_of_estimates());
}

// Behind a step, whether it is saved now. The job leaves where there isn't time for what may be saved now, the next
// step, its validation, and the save before it leaves.
template <class T>
bool Checkpoints<T>::due(const RunProgress& progress, bool last) {
  std::int64_t vote = 0;  // 1: it is time to save; 2: the metrics are lost, and the job leaves
  if (session_.mesh().world().rank() == 0 && !log_.lost().empty())
    vote = 2;
  else if (session_.mesh().world().rank() == 0 && deck().every_seconds > 0)
    vote = seconds_since(last_save_) >= static_cast<double>(deck().every_seconds);
  vote = leaving_.agree(seconds_of_next_step(progress.step) + seconds_to_save(), vote);
  lost_ = lost_ || vote == 2;
  const bool by_steps = deck().every_steps > 0 && progress.step % deck().every_steps == 0;
  return last || by_steps || vote != 0 || leaves();
}

template <class T>
CheckpointFacts Checkpoints<T>::facts_of(const RunProgress& progress) const {
  const RunSetup& setup = session_.setup();
  CheckpointFacts facts = facts_;
  facts.step = progress.step;
  facts.samples = setup.batches.before(progress.step + 1);
  facts.tokens = setup.tokens_through(progress.step);
  facts.updates = progress.updates;
  facts.bad_in_a_row = progress.bad_in_a_row;
  facts.spikes = to_text(progress.spikes);
  facts.seed = setup.deck.train.seed;
  facts.ranks = setup.mesh.world();
  return facts;
}

template <class T>
void Checkpoints<T>::write(const RunProgress& progress, bool wait) {
  const auto start = Clock::now();
  session_.put_averages();
  saver_.save(facts_of(progress), session_state(session_, StateUse::write), session_.stream());
  if (wait) saver_.finish();
  const std::string name = step_name(progress.step), seconds = format_seconds(seconds_since(start));
  last_save_ = Clock::now();
  if (saver_.committed() == progress.step)
    log_.say("            saved " + name + " in " + seconds + "\n");
  else
    log_.say("            " + name + " is being written behind the next steps, which waited " + seconds + "\n");
}

template <class T>
void Checkpoints<T>::say_notes() {
  for (const std::string& note : saver_.take_notes()) log_.say("            " + note + "\n");
}

// Whether it succeeded.
template <class T>
template <class F>
bool Checkpoints<T>::attempt(bool stops, F saves) {
  bool done = false;
  try {
    saves();
    done = true;
  } catch (const IoFailed& error) {
    if (stops) throw;
    log_.say(std::string("saving failed, the job goes on: ") + error.what() + "\n");
  }
  say_notes();
  return done;
}

// Whether the step is saved, or is being written. A save that nothing comes after must succeed.
template <class T>
bool Checkpoints<T>::save(const RunProgress& progress, bool leaves, bool last) {
  const bool stops = deck().stop_on_failure;
  leaves_ = leaves;
  if (leaves && !last) saver_.leave();
  attempt(stops && !leaves, [&] { saver_.finish(); });  // the one behind the steps so far
  return attempt(stops || leaves || last, [&] { write(progress, last || leaves); });
}

// A save that fails behind the steps isn't there; after_step() deals with it.
template <class T>
std::vector<std::string> Checkpoints<T>::committed() {
  attempt(deck().stop_on_failure, [&] { saver_.finish(); });
  std::vector<std::string> paths;
  if (session_.mesh().world().rank() != 0) return paths;
  for (const StepDirectory& step : committed_steps(deck().directory)) paths.push_back(step.path);
  return paths;
}

template <class T>
RunProgress Checkpoints<T>::go_back(const std::vector<std::string>& candidates) {
  std::vector<std::string> notes;
  RunProgress progress = restart(session_, session_.setup().deck, candidates, facts_.data, notes);
  for (const std::string& note : notes) log_.say("            " + note + "\n");
  return progress;
}

template <class T>
void Checkpoints<T>::before_first_step(std::int64_t step) {
  std::int64_t signal = weight_of_signal(stop_signal());
  session_.mesh().world().max_host({&signal, 1});
  if (signal == 0 && !leaving_.agreed()) return;
  leaving_.agree(0);
  leaving_.leave("left before step " + std::to_string(step));
}

template <class T>
bool Checkpoints<T>::after_step(const RunProgress& progress, const StepTimes& times, bool last, Watchdog* watchdog) {
  steps_[session_.setup().batches.of(progress.step)].add(times.step);
  add_validation(times);
  if (!due(progress, last)) return false;
  if (before_save_) before_save_(progress.step);
  if (watchdog) watchdog->start_other(progress.step, "checkpoint");
  const auto timer = session_.timers().start(Phase::output);
  const bool saved = save(progress, leaves(), last);
  if (last && !times.broken_off) return true;
  if (!leaves()) {
    // A signal that came meanwhile, or a save that took longer than expected, finds this step saved.
    if (saved) due(progress, false);
    if (!leaves()) return true;
    leaves_ = true;
    saver_.leave();
    attempt(true, [&] { saver_.finish(); });
  }
  if (lost_)
    throw IoFailed("saved " + step_name(progress.step) +
                   " and left: output.directory, or metrics.jsonl in it, was removed or replaced while the job ran");
  leaving_.leave("saved " + step_name(progress.step) + " and left");
}

FORGE_INSTANTIATE_FUNCTION(session_state);
FORGE_INSTANTIATE_CLASS(Checkpoints);
FORGE_INSTANTIATE_ACC_FUNCTION(bias_state);

}  // namespace forge

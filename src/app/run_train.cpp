#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>

#include "app/common_facts.hpp"
#include "app/end_of_job.hpp"
#include "app/job.hpp"
#include "app/layout_text.hpp"
#include "app/libraries.hpp"
#include "app/model_text.hpp"
#include "app/open_data.hpp"
#include "app/run_outputs.hpp"
#include "app/run_start.hpp"
#include "app/summary_text.hpp"
#include "app/token_bytes.hpp"
#include "app/verbs.hpp"
#include "config/write_deck.hpp"
#include "device/device_memory.hpp"
#include "plan/warnings.hpp"
#include "train/peak.hpp"
#include "train/references.hpp"
#include "train/restart.hpp"
#include "train/stop_request.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

// FLOP/s of this rank: the deck's, or measured in the memory that the run will have.
template <class T>
double peak_of(const RunSetup& setup, const World& world) {
  const Deck& deck = setup.deck;
  if (deck.machine.peak_tflops > 0) return deck.machine.peak_tflops * 1e12;
  world.watchdog().start_other(0, "measurements");
  return measure_peak(threads_of(deck, world), library_bytes(deck), planned_memory(setup, RunKind::training).total(),
                      dtype_of<T>, world.local_size());
}

template <class T>
JobFacts facts_of(Job<T>& job, const TrainingData& data, const World& world, double peak, const RunProgress& progress,
                  const CommandLine& line) {
  JobFacts facts;
  facts.record = job_record(line.inputs.front(), world);
  facts.device = device_info();
  facts.ranks = world.size();
  facts.nodes = world.nodes();
  facts.threads = job.threads;
  job.mesh.world().sum_host({&peak, 1});
  facts.peak_flops = peak;
  facts.peak_measured = job.setup.deck.machine.peak_tflops == 0;
  facts.memory = largest_of(memory_by_stage(job.setup, RunKind::training)).bytes;
  facts.training_tokens = data.tokens();
  facts.training_samples = data.samples();
  facts.data = data.lines(job.setup);
  facts.parameters = progress.from.empty() ? job.parameters : progress.from;
  facts.libraries = libraries();
  facts.start = world.watchdog().start_times();
  return facts;
}

// Mesh, stages and schedule, where there is more than one rank.
std::string layout_of(const RunSetup& s) {
  if (s.mesh.world() == 1) return "";
  std::string text = "mesh\n" + mesh_table(s.mesh, 0);
  if (s.mesh.pp > 1) {
    const Schedule schedule = shown_schedule(s.deck);
    text += "\n" + stage_table(s.deck, s.spec, schedule) + "\n" + schedule_line(s.deck, s.spec, schedule);
  }
  return text + "\n";
}

void append(std::vector<std::string>& notes, const std::vector<std::string>& more) {
  notes.insert(notes.end(), more.begin(), more.end());
}

// What rank 0 says of the deck, before its GPU's memory is taken.
std::string warnings_at(const RunSetup& setup, const World& world) {
  if (world.rank() > 0) return "";
  const int ranks_per_node = (world.size() + world.nodes() - 1) / world.nodes();
  std::vector<std::string> warnings = warnings_of(setup, {ranks_per_node, free_device_memory().value_or(0)});
  append(warnings, data_warnings(setup.deck, true));
  return warning_lines(warnings);
}

// Of the first rank, while the run writes: where something fails, the log's last line says why, as it says why a run
// has left on a signal, and the run directory is given back. The log has a descriptor of its own here, as the thread
// that fails may be another one than the one that writes.
std::unique_ptr<LastAct> last_act_of(RunDirectory& directory, const std::string& path) {
  return std::make_unique<LastAct>([&directory, log = path + "/log.txt"] {
    const Failure failure = failure_of(std::current_exception());
    std::string text = failure.text;
    std::replace(text.begin(), text.end(), '\n', ' ');
    try {
      LogFile file;
      file.open(log);
      file.write("stopped: " + text + " (exit code " + std::to_string(static_cast<int>(failure.code)) + ")\n");
    } catch (const Error&) {  // the disk may be full still
    }
    directory.give_back();
  });
}

// The run begins behind the checkpoint that it restarts from, or with step 1, and nothing can be wrong with the start
// any more: later checkpoints are moved aside; without a restart, all of them (--fresh).
template <class T>
RunProgress begin_run(Job<T>& job, const Deck& deck, const std::string& fingerprint, Start& start, Watchdog& watchdog) {
  append(start.notes, job.notes);
  RunProgress progress{.updates = job.updates};
  watchdog.start_other(0, "restart");
  if (start.restarts) progress = restart(*job.session, deck, start.plan.candidates, fingerprint, start.notes);
  watchdog.start_other(0, "run directory");
  start.if_it_fails.reset();
  if (RunDirectory* const directory = start.directory()) {
    const std::int64_t every = histogram_steps(deck.output.every_steps, deck.train.steps);
    if (deck.output.tensorboard)
      directory->track({every, job.setup.spec.options.forced_balance, deck.train.global_batch_sequences});
    if (!deck.checkpoint.directory.empty())
      append(start.notes, take_effect(start.plan, deck.checkpoint, progress.step));
    if (progress.step > 0)
      append(start.notes, directory->resume(progress.step, start.plan.goes_on));
    else
      directory->begin();
    start.if_it_fails = last_act_of(*directory, deck.output.directory);
  }
  job.mesh.world().barrier();
  return progress;
}

// What the screen and the run directory say before the first step.
struct JobTexts {
  std::string header, json;
};
void write_header(const JobTexts& texts, Start& start, const std::string& input, const Deck& deck,
                  const RunProgress& progress, const TrainingLog& log) {
  log.say(texts.header);
  for (const std::string& note : start.notes) log.say(note + "\n");
  if (RunDirectory* const directory = start.directory()) {
    if (const std::string note = directory->write_deck(write_deck(deck), input); !note.empty()) log.say(note + "\n");
    directory->write_file("job_info", texts.header);
    directory->write_file("job_info.json", texts.json);
    if (deck.output.track != TrackTo::none) directory->send(deck.output.track);
  }
  log.text(progress.step + 1, "deck", write_deck(deck));
  if (progress.step >= deck.train.steps)
    log.say("nothing to train: the checkpoint has all of train.steps = " + std::to_string(deck.train.steps) +
            "; to go on, raise it: --set train.steps=" + std::to_string(2 * deck.train.steps) + "\n");
}

// Null where the deck has none.
template <class T>
std::unique_ptr<Checkpoints<T>> checkpoints_of(Job<T>& job, const Deck& deck, const std::string& fingerprint,
                                               const TrainingLog& log, DirectoryLock* lock) {
  if (deck.checkpoint.directory.empty()) return nullptr;
  const CheckpointFacts facts{.deck = write_deck(deck), .build = build_description(), .data = fingerprint};
  return std::make_unique<Checkpoints<T>>(*job.session, facts, log, lock);
}

// Of a run with preference pairs: the data have the reference's log-probabilities from here on. For the checkpoints.
std::string use_references(const Deck& deck, TrainingData& data) {
  return "; reference " + std::to_string(read_references(reference_path(deck), data));
}

// When this process began, by its watchdog.
std::chrono::steady_clock::time_point begin_of(const World& world) {
  using Clock = std::chrono::steady_clock;
  double seconds = 0;
  for (const auto& part : world.watchdog().start_times()) seconds += part.second;
  return Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

template <class T>
void train(const CommandLine& line, const Deck& deck, const World& world) {
  const RunBegin begin{begin_of(world), host_memory().resident};
  RunSetup setup = make_setup(deck, world.rank());
  const std::string warnings = warnings_at(setup, world);
  TrainingData data = open_data(setup, world);
  data.check(setup);
  std::string note;
  if (!deck.data.validation.empty() && deck.train.validate_every_steps > 0)
    data.token_bytes = token_bytes(deck, world, "", "", &note);
  if (deck.output.sample_tokens > 0 && world.rank() == 0)
    ModelText(deck).encode(deck.output.sample_prompt, "output.sample_prompt");
  if (world.rank() == 0) check_outputs(deck);
  prepare_device(setup, RunKind::training, world);
  Start start = start_of(line, deck, world);
  if (start.files) setup.deck.checkpoint.model_from = start.plan.model_from;
  if (!note.empty()) start.notes.push_back(note);
  const double peak = peak_of<T>(setup, world);
  Job<T> job(setup, RunKind::training, world, start.restarts);
  std::string fingerprint = data_fingerprint(data.stream(setup));
  const bool pairs = deck.preference.on();
  ReferenceKeys keys;
  if (pairs) {
    world.watchdog().start_other(0, "pairs");
    if (start.restarts)
      fingerprint += use_references(deck, data);
    else
      keys = check_references(*job.session, data, reference_path(deck));
  }
  const RunProgress progress = begin_run(job, deck, fingerprint, start, world.watchdog());
  world.watchdog().start_other(0, "measurements");
  const TrainingLog log(start.directory(), nullptr,
                        {begin.time, start.directory() ? start.directory()->elapsed_before() : 0});
  const JobFacts facts = facts_of(job, data, world, peak, progress, line);
  write_header({job_header(setup, facts) + warnings + layout_of(setup), job_json(setup, facts)}, start,
               line.inputs.front(), deck, progress, log);
  if (pairs && !start.restarts) {
    world.watchdog().start_other(0, "reference");
    log.say(make_references(*job.session, data, reference_path(deck), keys) + "\n");
    fingerprint += use_references(deck, data);
  }
  const auto checkpoints = checkpoints_of(job, deck, fingerprint, log, start.checkpoints());
  try {
    Trainer<T>(*job.session, data, facts.peak_flops, log, progress, checkpoints.get(), &world).run();
    write_outputs(job, world, begin, start.directory(), log, checkpoints ? &checkpoints->leaving() : nullptr);
  } catch (const LeftOnSignal& left) {
    log.clear();
    log.note(std::string("stopped: ") + left.what() + "\n");
    throw;
  }
  world.watchdog().start_other(0, "end");
  log.finish(world.watchdog().heartbeat());
  job.mesh.world().barrier();
}

}  // namespace

void run_train(const CommandLine& line, const World& world) {
  const Deck deck = load_deck(line, Needs::training, world);
  if (deck.checkpoint.directory.empty()) end_on_stop_signals();  // there is nothing to save
  agree_on_start(deck, world);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { train<T>(line, deck, world); });
}

}  // namespace forge

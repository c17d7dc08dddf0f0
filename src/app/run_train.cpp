#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "app/job.hpp"
#include "app/layout_text.hpp"
#include "app/verbs.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "config/hf_config.hpp"
#include "config/write.hpp"
#include "core/bytes.hpp"
#include "device/memory.hpp"
#include "train/peak.hpp"
#include "train/restart.hpp"
#include "train/sampling.hpp"
#include "train/stop_request.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace {

// FLOP/s of all ranks, and whether it was measured.
template <class T>
std::pair<double, bool> peak_of(Job<T>& job, const Deck& deck) {
  Communicator& ranks = job.mesh.world();
  if (deck.machine.peak_tflops > 0) return {deck.machine.peak_tflops * 1e12 * ranks.size(), false};
  double peak = measure_peak(job.session->stream(), job.session->gemm(), dtype_of<T>);
  ranks.sum_host({&peak, 1});
  return {peak, true};
}

template <class T>
JobFacts facts_of(Job<T>& job, const TrainingData& data, const World& world) {
  JobFacts facts;
  facts.device = device_info();
  facts.ranks = world.size();
  facts.nodes = world.nodes();
  facts.threads = job.threads;
  std::tie(facts.peak_flops, facts.peak_measured) = peak_of(job, job.setup.deck);
  facts.memory = largest_of(memory_by_stage(job.setup, RunKind::training)).bytes;
  facts.training_tokens = data.training.tokens();
  facts.training_samples = data.training.samples();
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

// What this rank has sent on each group since the start, by the least that the operations need.
std::string traffic_report(Mesh& mesh) {
  std::string text;
  for (const auto& [group, traffic] : mesh.traffic())
    if (traffic.total_bytes() > 0)
      text += (text.empty() ? "sent by rank 0: " : ", ") + group + " " +
              format_bytes(static_cast<std::size_t>(traffic.total_bytes()));
  return text.empty() ? text : text + "\n";
}

// What the trained model writes after output.sample_prompt; all ranks.
template <class T>
void write_sample(Job<T>& job, const TrainingLog& log) {
  const OutputDeck& o = job.setup.deck.output;
  std::vector<std::int32_t> prompt;
  for (const char c : o.sample_prompt) prompt.push_back(static_cast<unsigned char>(c));
  if (prompt.empty()) prompt.push_back('\n');
  WholeTensors<T> tensors = job.whole_tensors();
  const WholeWeights<T> whole(job.setup.spec, tensors, job.session->stream());
  if (!tensors.receives()) return;
  Decoder<T> decoder(job.session->stream(), job.setup.spec, job.setup.buffers.precision, whole.units, whole.weights,
                     static_cast<std::int64_t>(prompt.size()) + o.sample_tokens,
                     job.session->routers().read_biases(job.session->stream()));
  std::string text = o.sample_prompt;
  for (const auto t :
       continue_tokens(decoder, prompt, o.sample_tokens, {o.sample_temperature, 0, 1, job.setup.deck.train.seed}))
    text += t < 256 ? static_cast<char>(t) : '\n';
  log.say("sample (temperature " + std::to_string(o.sample_temperature).substr(0, 4) + "):\n" + printable(text) + "\n");
}

// All ranks; the first one has the directory.
template <class T>
void write_model(Job<T>& job, const RunDirectory* directory, const TrainingLog& log) {
  const std::string path = job.setup.deck.output.directory + "/hf";
  if (directory) std::filesystem::create_directories(path);
  WholeTensors<T> tensors = job.whole_tensors();
  write_hf_tensors(path + "/model.safetensors", job.setup.units, tensors, TensorSource::parameters,
                   job.session->stream(), {{"format", "pt"}}, &job.setup.spec,
                   job.session->routers().read_biases(job.session->stream()));
  if (directory) directory->write_file("hf/config.json", write_hf_config(job.setup.spec.options));
  log.say("model written to " + path + "\n");
}

// Wrong files (another vocabulary, another dtype) mostly show in the first sample: before anything is written.
void read_first_sample(const RunSetup& setup, const TrainingData& data) {
  const SampleSequence sequence{setup.deck.data.order, setup.deck.train.seed, data.training.samples()};
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(setup.deck.train.sequence_tokens + 1));
  data.training.read(sequence.at(0), tokens);
}

// What was planned, what the arena held, and what the process took on the host. Outside: libraries, MPI, the batches
// that are read ahead.
template <class T>
std::string memory_report(Job<T>& job, std::size_t outside) {
  const Arena& arena = job.session->arena();
  return "memory of rank 0: planned " + std::to_string(job.memory.total()) + " B, high-water mark " +
         std::to_string(arena.high_water()) + " B; resident on the host " + std::to_string(host_memory().peak) +
         " B, of which " + std::to_string(outside) + " B outside at the start\n";
}

// How a run starts: from a checkpoint or with step 1.
struct Start {
  RunStart plan;  // of the first rank
  bool restarts = false;
  std::vector<std::string> notes;  // for the log
};

void append(std::vector<std::string>& notes, const std::vector<std::string>& more) {
  notes.insert(notes.end(), more.begin(), more.end());
}

// What the first rank owns for as long as the job lives.
struct RunFiles {
  explicit RunFiles(const Deck& deck) : directory(deck.output.directory) {
    if (!deck.checkpoint.stop_on_failure) directory.keep_what_fails();
    if (!deck.checkpoint.directory.empty())
      checkpoints.emplace(LockedDirectory{"checkpoint.directory", deck.checkpoint.directory, ".checkpoints.lock"});
  }

  RunDirectory directory;
  std::optional<DirectoryLock> checkpoints;
};

// Ends what dead jobs have left in checkpoint.directory; for the log.
std::vector<std::string> notes_of_locks(const RunFiles& files, const std::string& directory) {
  std::vector<std::string> notes{files.directory.lock().warning()};
  if (files.checkpoints) {
    notes.push_back(files.checkpoints->warning());
    for (const std::string& path :
         tidy_directory(directory, [&](const std::string& path) { return files.checkpoints->is_left_over(path); }))
      notes.push_back(path + " may be of another job that runs still, and stays");
  }
  std::erase(notes, "");
  return notes;
}

// Of all ranks: the first one has the run directory, looks for checkpoints and throws where the others would have to.
Start start_of(const CommandLine& line, const Deck& deck, const World& world, std::unique_ptr<RunFiles>& files) {
  if (deck.checkpoint.directory.empty() && (line.restart == "latest" || line.fresh))
    throw BadInput(std::string(line.fresh ? "--fresh" : "--restart latest") +
                   ": the deck has no checkpoint.directory; legal: give one" +
                   (line.fresh ? ", or leave --fresh out" : ", or --restart DIR"));
  Start start;
  std::int64_t restarts = 0;
  if (world.rank() == 0) {
    files = std::make_unique<RunFiles>(deck);
    start.notes = notes_of_locks(*files, deck.checkpoint.directory);
    start.plan = start_of_run({line.restart, line.fresh}, deck.checkpoint, batch_job());
    append(start.notes, start.plan.notes);
    restarts = !start.plan.candidates.empty();
  }
  world.make_world()->max_host({&restarts, 1});
  start.restarts = restarts != 0;
  return start;
}

// "ranks 0, 2 to 5" of those with the same text.
std::string ranks_with(const std::vector<std::string>& answers, const std::string& text) {
  std::string list;
  for (std::size_t r = 0; r < answers.size(); ++r) {
    if (answers[r] != text) continue;
    std::size_t end = r;
    while (end + 1 < answers.size() && answers[end + 1] == text) ++end;
    list += (list.empty() ? "rank " : ", ") + std::to_string(r) + (end > r ? " to " + std::to_string(end) : "");
    r = end;
  }
  return list;
}

// "n3, n4" of the ranks that gave no answer.
std::string silent_nodes(const World& world, const std::vector<std::string>& answers) {
  std::vector<std::string> nodes;
  std::string list;
  for (std::size_t r = 0; r < answers.size(); ++r) {
    const std::string node = answers[r].empty() ? world.node_name(static_cast<int>(r)) : "";
    if (node.empty() || std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
    nodes.push_back(node);
    list += (list.empty() ? "" : ", ") + node;
  }
  return list;
}

// What the rank that reports says of all: who doesn't answer, and what the others were doing.
std::string deadline_report(const World& world, const std::vector<std::string>& answers, const std::string& doing) {
  if (answers.empty()) return doing;
  std::string text;
  std::vector<std::string> said;
  for (const std::string& answer : answers) {
    if (std::find(said.begin(), said.end(), answer) != said.end()) continue;
    said.push_back(answer);
    text += (text.empty() ? "" : "; ") + ranks_with(answers, answer) +
            (answer.empty() ? ": no answer from " + silent_nodes(world, answers) + ", stopped or lost" : ": " + answer);
  }
  return text;
}

// In the watchdog's thread. The first rank reports and ends the job; the second one does so where the first doesn't
// run.
void end_hanging_job(const World& world, const std::string& doing) {
  const auto answers = world.roll_call(doing, world.rank() == 0 ? 1.2 : 1.5);
  const bool reports = world.rank() == 0 || (!answers.empty() && answers.front().empty());
  if (!reports) std::this_thread::sleep_for(std::chrono::milliseconds(1800));
  std::fprintf(stderr, "forge: error: a deadline was missed (machine.deadline_seconds, first_deadline_seconds): %s\n",
               deadline_report(world, answers, doing).c_str());
  std::fflush(stderr);
  world.abort(static_cast<int>(ExitCode::deadline_missed));
}

// Of every rank, from the start of a run; none with a first deadline of 0.
std::unique_ptr<Watchdog> watchdog_of(const MachineDeck& machine, const World& world) {
  const Deadlines deadlines{static_cast<double>(machine.first_deadline_seconds),
                            static_cast<double>(machine.deadline_seconds)};
  if (deadlines.first == 0) return nullptr;
  return std::make_unique<Watchdog>(deadlines, [&world](const std::string& doing) { end_hanging_job(world, doing); });
}

template <class T>
void train(const CommandLine& line, const Deck& deck, const World& world) {
  const std::size_t outside = host_memory().resident;
  const auto start_time = std::chrono::steady_clock::now();
  std::unique_ptr<Watchdog> watchdog = watchdog_of(deck.machine, world);
  RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data(setup);
  read_first_sample(setup, data);
  std::unique_ptr<RunFiles> files;
  Start start = start_of(line, deck, world, files);
  if (files) setup.deck.checkpoint.model_from = start.plan.model_from;
  RunDirectory* const directory = files ? &files->directory : nullptr;
  if (start.restarts) {  // the checkpoint's parameters are the ones
    setup.deck.model.load_weights = false;
    setup.deck.checkpoint.model_from.clear();
  }
  Job<T> job(setup, RunKind::training, world);
  append(start.notes, job.notes);
  const std::string fingerprint = data_fingerprint(data.training);
  RunProgress progress;
  if (watchdog && start.restarts) watchdog->start_other(0, "restart");
  if (start.restarts) progress = restart(*job.session, deck, start.plan.candidates, fingerprint, start.notes);
  // When nothing can be wrong with the start any more; without a restart, all of them (--fresh).
  if (directory && !deck.checkpoint.directory.empty())
    append(start.notes, take_effect(start.plan, deck.checkpoint, progress.step));
  if (directory) progress.step > 0 ? directory->resume(progress.step) : directory->begin();
  job.mesh.world().barrier();
  const TrainingLog log(directory);
  const JobFacts facts = facts_of(job, data, world);
  const std::string header = job_header(setup, facts) + layout_of(setup);
  log.say(header);
  for (const std::string& note : start.notes) log.say(note + "\n");
  if (directory) {
    directory->write_file("deck.yaml", write_deck(deck));
    directory->write_file("job_info", header);
  }
  std::unique_ptr<Checkpoints<T>> checkpoints;
  if (!deck.checkpoint.directory.empty()) {
    const RunFacts run{write_deck(deck), build_description(), fingerprint};
    checkpoints = std::make_unique<Checkpoints<T>>(*job.session, run, log, files ? &*files->checkpoints : nullptr);
  }
  if (progress.step >= deck.train.steps)
    log.say("nothing to train: the checkpoint has all of train.steps = " + std::to_string(deck.train.steps) + "\n");
  Trainer<T>(*job.session, data, facts.peak_flops, log, progress, checkpoints.get(), watchdog.get()).run();
  watchdog.reset();
  const double total = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_time).count();
  log.say(time_table(job.session->timers(), total));
  log.say(memory_report(job, outside));
  log.say(traffic_report(job.mesh));
  if (deck.output.sample_tokens > 0) write_sample(job, log);
  if (deck.output.save_hf) write_model(job, directory, log);
  if (directory) directory->finish();
  job.mesh.world().barrier();
}

}  // namespace

void run_train(const CommandLine& line, const World& world) {
  const Deck deck = load_deck(line, Needs::training, world);
  if (deck.checkpoint.directory.empty()) release_stop_signals();  // main catches them: there is nothing to save
  agree_on_deck(deck, world);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { train<T>(line, deck, world); });
}

}  // namespace forge

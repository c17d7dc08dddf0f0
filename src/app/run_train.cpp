#include <chrono>
#include <cstdio>
#include <filesystem>

#include "app/job.hpp"
#include "app/layout_text.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "config/hf_config.hpp"
#include "config/write.hpp"
#include "core/bytes.hpp"
#include "device/memory.hpp"
#include "train/peak.hpp"
#include "train/sampling.hpp"
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
  const MemoryPlan largest = largest_of(memory_by_stage(job.setup, RunKind::training));
  facts.arena_bytes = largest.total();
  facts.memory = largest.bytes;
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

template <class T>
void train(const Deck& deck, const World& world) {
  const std::size_t outside = host_memory().resident;
  const auto start = std::chrono::steady_clock::now();
  const RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data(setup);
  read_first_sample(setup, data);
  Job<T> job(setup, RunKind::training, world);
  std::unique_ptr<RunDirectory> directory;
  if (world.rank() == 0) directory = std::make_unique<RunDirectory>(deck.output.directory);
  job.mesh.world().barrier();
  const TrainingLog log(directory.get());
  const JobFacts facts = facts_of(job, data, world);
  const std::string header = job_header(setup, facts) + layout_of(setup);
  log.say(header);
  if (directory) {
    directory->write_file("deck.yaml", write_deck(deck));
    directory->write_file("job_info", header);
  }
  Trainer<T> trainer(*job.session, data, facts.peak_flops, log);
  trainer.run();
  const double total = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log.say(time_table(job.session->timers(), total));
  log.say(memory_report(job, outside));
  log.say(traffic_report(job.mesh));
  if (deck.output.sample_tokens > 0) write_sample(job, log);
  if (deck.output.save_hf) write_model(job, directory.get(), log);
  job.mesh.world().barrier();
}

}  // namespace

void run_train(const CommandLine& line, const World& world) {
  const Deck deck = load_deck(line, Needs::training, world.size());
  agree_on_deck(deck, world);
  with_compute_type(deck, [&]<class T>(std::type_identity<T>) { train<T>(deck, world); });
}

}  // namespace forge

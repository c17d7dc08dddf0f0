#include "app/run_outputs.hpp"

#include <optional>
#include <type_traits>

#include "app/model_text.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "checkpoint/model_directory.hpp"
#include "config/output_lock.hpp"
#include "core/bytes.hpp"
#include "core/faults.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "hf/tensor_directory.hpp"
#include "tokenizer/unicode.hpp"
#include "train/job_report.hpp"
#include "train/sampling.hpp"

namespace forge {

namespace {

std::string hf_directory(const Deck& deck) {
  return deck.output.directory + "/hf";
}

// What this rank has sent on each group since the start, by the least that the operations need.
std::string traffic_report(Mesh& mesh) {
  std::string text;
  for (const auto& [group, traffic] : mesh.traffic())
    if (traffic.total_bytes() > 0)
      text += (text.empty() ? "sent by rank 0: " : ", ") + group + " " + format_bytes(to_size(traffic.total_bytes()));
  return text.empty() ? text : text + "\n";
}

// What was planned, what the arena held, and what the process took on the host. Outside: libraries, MPI, the batches
// that are read ahead.
template <class T>
std::string memory_report(Job<T>& job, std::size_t outside) {
  const Arena& arena = job.session->arena();
  return "memory of rank 0: planned " + format_bytes(job.memory.total()) + ", high-water mark " +
         format_bytes(arena.high_water()) + "; resident on the host " + format_bytes(host_memory().peak) +
         ", of which " + format_bytes(outside) + " outside at the start\n";
}

// Throws LeftOnSignal on all ranks where they leave.
void leave_if_asked(Leaving& leaving, const char* what) {
  leaving.agree(0);
  if (leaving.agreed()) leaving.leave("the trained model is saved; left without the " + std::string(what));
}

// Of the ranks that don't draw: they ask with each token whether they leave, as the one does that draws, until it has
// no more.
void follow_sample(Leaving& leaving) {
  while (leaving.agree(0) == 0 && !leaving.agreed()) continue;
}

// What the trained model writes after output.sample_prompt; all ranks.
template <class T>
void write_sample(Job<T>& job, const TrainingLog& log, Leaving* leaving) {
  const OutputDeck& o = job.setup.deck.output;
  const ModelText model_text(job.setup.deck);
  std::vector<std::int32_t> prompt =
      model_text.encode(o.sample_prompt.empty() ? "\n" : o.sample_prompt, "output.sample_prompt");
  if (prompt.empty())
    prompt.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, job.setup.deck.data.document_end_token)));
  WholeTensors<T> tensors = job.whole_tensors();
  if (leaving) tensors.set_pause([&] { leave_if_asked(*leaving, "sample"); });
  const WholeWeights<T> whole(job.setup.spec, tensors, job.session->stream());
  if (!tensors.receives()) return leaving ? follow_sample(*leaving) : void();
  Decoder<T> decoder(job.session->stream(), job.setup.spec, job.setup.buffers.precision, whole.units, whole.weights,
                     static_cast<std::int64_t>(prompt.size()) + o.sample_tokens,
                     job.session->routers().read_biases(job.session->stream()));
  TextPrinter printer(model_text);
  std::string sample = printable_text(replace_ill_formed(o.sample_prompt));
  log.say("sample (temperature " + std::to_string(o.sample_temperature).substr(0, 4) + "):\n" + sample);
  const SamplingOptions options{o.sample_temperature, 0, 1, job.setup.deck.train.seed, model_text.ends()};
  const auto add = [&](std::int32_t id) {
    const std::string text = printer.add(id);
    if (!text.empty()) log.say(text);
    sample += text;
    return true;
  };
  continue_tokens(decoder, prompt, o.sample_tokens, options, job.session->heartbeat(), add, [&] {
    if (leaving) leaving->agree(0);
    return leaving && leaving->agreed();
  });
  const std::string rest = printer.finish();
  log.say(rest + "\n");
  log.text(job.setup.deck.train.steps, "sample", replace_ill_formed(sample + rest));
  if (leaving && !leaving->agreed()) leaving->agree(0, 1);
}

// All ranks; the first one has the directory.
template <class T>
void write_model(Job<T>& job, const RunDirectory* directory, const TrainingLog& log, Leaving* leaving) {
  Deck deck = job.setup.deck;
  deck.model = job.setup.spec.options;
  const std::string path = hf_directory(deck);
  std::optional<OutputDirectoryLock> lock;
  if (directory) lock.emplace(path, "output.save_hf:");
  if (directory) begin_export(path, names_of_run(deck.checkpoint.directory, deck.output.directory));
  WholeTensors<T> tensors = job.whole_tensors();
  if (leaving) tensors.set_pause([&] { leave_if_asked(*leaving, "model as a Hugging Face directory"); });
  write_hf_tensors(path + "/model.safetensors", job.setup.units, tensors, TensorSource::parameters,
                   job.session->stream(), {{"format", "pt"}}, &job.setup.spec,
                   job.session->routers().read_biases(job.session->stream()));
  if (directory) {
    write_model_files(deck, path, std::is_same_v<acc_t<T>, double> ? "float64" : "float32");
    // Files of an earlier export, which readers would take in the place of these or beside them.
    remove_tensor_files(path, "model", {"model.safetensors"});
    remove_tensor_files(path, "optimizer");
  }
  log.say("model written to " + path + "\n");
}

}  // namespace

void check_outputs(const Deck& deck) {
  if (!deck.output.save_hf) return;
  check_tokenizer(deck.model);
  check_export_directory(hf_directory(deck), names_of_run(deck.checkpoint.directory, deck.output.directory), deck.model,
                         "output.save_hf:");
}

template <class T>
void write_outputs(Job<T>& job, const World& world, const RunBegin& begin, const RunDirectory* directory,
                   const TrainingLog& log, Leaving* leaving) {
  const OutputDeck& output = job.setup.deck.output;
  job.session->use_averages();
  job.session->stream().synchronize();
  job.session->timers().count_ended();
  const double total = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin.time).count();
  log.say(time_table(job.session->timers(), world.watchdog().start_times(), total));
  log.say(memory_report(job, begin.outside));
  log.say(traffic_report(job.mesh));
  const auto begins = [&](const char* what) {
    world.watchdog().start_other(0, what);
    inject_fault(world.rank(), what, [&] { return leaving && leaving->asked(0); });
  };
  if (output.sample_tokens > 0) {
    begins("sampling");
    write_sample(job, log, leaving);
    if (leaving) leave_if_asked(*leaving, "rest of the sample");
  }
  if (output.save_hf) {
    begins("export");
    write_model(job, directory, log, leaving);
  }
}

FORGE_INSTANTIATE_FUNCTION(write_outputs);

}  // namespace forge

#include "train/job_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/build_info.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "model/flops.hpp"

namespace forge {

namespace {

constexpr std::size_t most_hosts = 4;
constexpr std::size_t most_command = 2000;  // bytes of a log's line

// PBS and LSF have no other name for it.
void find_batch_job(JobRecord& record) {
  struct System {
    const char *name, *variable;
  };
  constexpr std::array<System, 3> systems{{{"Slurm", "SLURM_JOB_ID"}, {"PBS", "PBS_JOBID"}, {"LSF", "LSB_JOBID"}}};
  for (const System& system : systems) {
    const char* const number = std::getenv(system.variable);
    if (!number || !*number) continue;
    record.batch_system = system.name;
    record.job = number;
    return;
  }
}

std::vector<std::string> arguments_of_process() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_-./:=,+@%").find(c) != std::string::npos;
}

}  // namespace

JobRecord job_record(const std::string& deck, const World& world) {
  JobRecord record;
  record.started = std::time(nullptr);
  record.arguments = arguments_of_process();
  std::error_code error;
  record.directory = std::filesystem::current_path(error).string();
  record.deck = deck;
  find_batch_job(record);
  record.nodes = world.nodes();
  record.hosts = world.first_nodes(most_hosts);
  if (record.hosts.empty()) record.hosts = {host_name()};
  return record;
}

std::string iso_time(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  char date[32] = "", zone[8] = "";
  if (!localtime_r(&time, &local)) return "@" + std::to_string(seconds);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &local);
  std::strftime(zone, sizeof zone, "%z", &local);
  std::string text = std::string(date) + zone;
  if (text.size() > 2) text.insert(text.size() - 2, ":");
  return text;
}

std::string command_text(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() && std::all_of(argument.begin(), argument.end(), is_plain);
    std::string word;
    for (const char c : argument)
      word += c == '\'' ? "'\\''" : std::string(1, static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return text.size() > most_command ? text.substr(0, most_command) + " …" : text;
}

std::string record_lines(const JobRecord& r) {
  std::string where = " on ";
  for (std::size_t i = 0; i < r.hosts.size(); ++i) where += (i > 0 ? ", " : "") + r.hosts[i];
  if (to_size(r.nodes) > r.hosts.size()) where += ", … (" + std::to_string(r.nodes) + " nodes)";
  if (!r.job.empty()) where += "; " + r.batch_system + " job " + r.job;
  return titled_line("started", iso_time(r.started) + where) + titled_line("command", command_text(r.arguments));
}

std::string titled_line(const char* title, const std::string& text) {
  return formatted("  %-10s", title) + text + "\n";
}

std::string model_text(const RunSetup& s) {
  const ModelSpec& m = s.spec;
  return formatted("%s parameters; L %lld, C %lld, H %lld, K %lld, D %lld, F %lld, V %lld",
                   format_count(static_cast<double>(parameter_count(s.units))).c_str(), static_cast<long long>(m.L()),
                   static_cast<long long>(m.C()), static_cast<long long>(m.H()), static_cast<long long>(m.K()),
                   static_cast<long long>(m.D()), static_cast<long long>(m.F()), static_cast<long long>(m.V()));
}

std::string work_text(const RunSetup& s) {
  return format_flops(training_flops_per_token(s.spec, s.units, s.deck.train.sequence_tokens)) +
         "FLOP a token, forward and backward";
}

std::string batch_text(const RunSetup& s) {
  const TrainDeck& t = s.deck.train;
  return counted(t.global_batch_sequences, "sequence") + " of " + counted(t.sequence_tokens, "token") +
         " a step = " + counted(s.replicas(), "rank") + " x " + counted(s.microbatches, "microbatch", "microbatches") +
         " x " + std::to_string(t.microbatch_sequences) +
         (s.batches.text().empty() ? "" : "; ramp: " + s.batches.text());
}

std::string memory_text(const std::array<std::size_t, category_count>& bytes) {
  std::size_t all = 0;
  std::string parts;
  for (int c = 0; c < category_count; ++c) {
    const std::size_t part = bytes[to_size(c)];
    all += part;
    if (part > 0)
      parts += (parts.empty() ? "" : ", ") + std::string(name_of(static_cast<Category>(c))) + " " + format_bytes(part);
  }
  return format_bytes(all) + " a rank: " + parts;
}

std::string build_description() {
  return formatted("forge %s, %s, %s %s", FORGE_VERSION, FORGE_BUILD_KIND,
#if defined(__clang__)
                   "clang",
#else
                   "g++",
#endif
                   __VERSION__);
}

std::string job_header(const RunSetup& s, const JobFacts& f) {
  const double epochs =
      static_cast<double>(s.batches.before(s.deck.train.steps + 1)) / static_cast<double>(f.training_samples);
  const std::string revision = program_revision();
  std::string out = build_description() + (revision.starts_with("unknown") ? ", " : ", revision ") + revision + "\n";
  out += record_lines(f.record);
  out += titled_line("machine", formatted("%s (%s), ", f.device.name, f.device.features) +
                                    counted(f.device.cores, "core") + "; " + counted(f.ranks, "rank") + " on " +
                                    counted(f.nodes, "node") + ", " + counted(f.threads, "thread") + " each");
  out += titled_line("peak",
                     formatted("%sFLOP/s, %s", format_flops(f.peak_flops).c_str(),
                               f.peak_measured ? "measured with matrix products on all ranks" : "machine.peak_tflops"));
  out += titled_line("model", model_text(s));
  out += titled_line("work", work_text(s));
  out += titled_line("batch", batch_text(s));
  auto files = static_cast<std::int64_t>(s.deck.data.files.size());
  for (const SourceDeck& source : s.deck.data.sources) files += static_cast<std::int64_t>(source.files.size());
  out += titled_line("data", format_count(static_cast<double>(f.training_tokens)) + " tokens in " +
                                 counted(files, "file") + formatted("; %.2f epochs", epochs));
  for (const std::string& line : f.data) out += titled_line("", line);
  out += titled_line("parameters", "  " + f.parameters);
  out += titled_line("memory", memory_text(f.memory));
  return out;
}

std::string step_titles() {
  return "       step      loss  grad norm       rate  tokens/s  of peak    left\n";
}

std::string step_line(const StepRecord& r, std::int64_t steps, double seconds_left) {
  const std::string step = std::to_string(r.step) + "/" + std::to_string(steps);
  return formatted("%11s %9.4f %10.4f %10.3e %9.0f %7.1f%% %7s%s\n", step.c_str(), r.loss, r.grad_norm, r.learning_rate,
                   r.tokens_per_second, 100 * r.mfu, format_seconds(seconds_left).c_str(),
                   !r.finite     ? "  NaN or Inf: not updated"
                   : r.held_back ? "  spike: not updated"
                                 : "");
}

std::string validation_line(const ValidationRecord& v) {
  const std::string begin = "            validation" + (v.set.empty() ? "" : " " + v.set);
  if (v.labels == 0) return begin + ": its tokens have no labels, so there is neither loss nor perplexity\n";
  if (v.pairs)
    return begin +
           formatted(" loss %.4f, margin %.4f, accuracy %.3f, of ", v.loss, v.pairs->margin, v.pairs->accuracy) +
           counted(v.labels, "pair") + "\n";
  const std::string bits = v.bits_per_byte ? formatted(", %.4f bits per byte", *v.bits_per_byte) : "";
  return begin + formatted(" %.4f nats a token, perplexity %.3f", v.loss, std::exp(v.loss)) + bits + "\n";
}

std::string task_line(const TaskRecord& t) {
  return "            task " + t.task + formatted(" accuracy %.4f, normalised %.4f, of ", t.accuracy, t.normalised) +
         counted(t.questions, "question") + "\n";
}

std::string time_table(const PhaseTimers& timers, const StartTimes& start, double total) {
  const auto row = [&](std::string_view name, double seconds) {
    return formatted("  %-11s %9.2f s %6.1f %%\n", std::string(name).c_str(), seconds, 100 * seconds / total);
  };
  std::string parts, first_batch;
  double known = 0, validated = 0;  // of the phase "validation" a part that stands in the start
  for (const auto& [name, seconds] : start) {
    std::string& to = name == first_batch_name ? first_batch : parts;
    if (name == name_of(Phase::validation)) validated += seconds;
    if (&to == &parts) known += seconds;
    if (seconds >= 0.005) to += formatted("    %-13s %5.2f s\n", name.c_str(), seconds);
  }
  std::string out = "time of rank 0:\n" + (known > 0 ? row("start", known) : "") + parts;
  for (int p = 0; p < phase_count; ++p) {
    double seconds = timers.seconds(static_cast<Phase>(p));
    if (static_cast<Phase>(p) == Phase::validation) seconds = std::max(0.0, seconds - validated);
    known += seconds;
    if (seconds > 0) out += row(name_of(static_cast<Phase>(p)), seconds);
    if (static_cast<Phase>(p) == Phase::data) out += first_batch;  // a part of it
  }
  return out + row("other", total - known) + formatted("  %-11s %9.2f s\n", "total", total);
}

}  // namespace forge

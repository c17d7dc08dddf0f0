#include "train/job_report.hpp"

#include <cmath>

#include "core/build_info.hpp"
#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "model/flops.hpp"

namespace forge {

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
  return format_flops(training_flops_per_token(s.spec, s.deck.train.sequence_tokens)) +
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
                   r.finite ? "" : "  NaN or Inf: not updated");
}

std::string validation_line(double loss, std::int64_t labels) {
  if (labels == 0)
    return "            validation: its tokens have no labels, so there is neither loss nor perplexity\n";
  return formatted("            validation %.4f nats a token, perplexity %.3f\n", loss, std::exp(loss));
}

std::string time_table(const PhaseTimers& timers, double total) {
  std::string out = "time of rank 0:\n";
  double known = 0;
  for (int p = 0; p < phase_count; ++p) {
    const double seconds = timers.seconds(static_cast<Phase>(p));
    known += seconds;
    if (seconds > 0)
      out += formatted("  %-11s %9.2f s %6.1f %%\n", std::string(name_of(static_cast<Phase>(p))).c_str(), seconds,
                       100 * seconds / total);
  }
  return out + formatted("  %-11s %9.2f s %6.1f %%\n  %-11s %9.2f s\n", "other", total - known,
                         100 * (total - known) / total, "total", total);
}

std::string printable(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto u = static_cast<unsigned char>(c);
    out += u == '\n' || (u >= 0x20 && u < 0x7f) ? c : '?';
  }
  return out;
}

}  // namespace forge

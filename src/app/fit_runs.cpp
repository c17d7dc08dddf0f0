#include "app/fit_runs.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "app/job.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/median.hpp"
#include "hf/json_input.hpp"
#include "predict/fit.hpp"

namespace forge {

namespace {

constexpr std::size_t least_steps = 3;

// Of the steps of the last layout, which has its own peak of memory, with the largest batch, but the first, which
// touches memory for the first time.
std::vector<double> step_seconds(const std::string& file, std::int64_t batch) {
  std::istringstream lines(read_text_file(file, std::size_t{1} << 30, "the metrics"));
  std::vector<double> seconds;
  std::int64_t peak = 0;
  Report report;
  for (std::string text; std::getline(lines, text);) {
    const auto json = parse_json(text, file, {});
    const JsonObject step(json, file, report);
    if (!step.has("step_seconds")) continue;
    const std::int64_t bytes = step.integer("peak_bytes", 0, 0, std::int64_t{1} << 62);
    if (step.integer("sequences", batch, 1, batch) != batch) continue;
    if (bytes != peak) seconds.clear();
    peak = bytes;
    seconds.push_back(step.number("step_seconds", 1, 0));
  }
  report.throw_if_any(file);
  if (seconds.size() <= least_steps)
    throw BadInput(file + " has " + counted(std::ssize(seconds), "step") + "; legal: more than " +
                   std::to_string(least_steps));
  seconds.erase(seconds.begin());
  return seconds;
}

// The written file is like the machine's own, which must stay.
void check_output(const CommandLine& line) {
  const std::string name = line.machine.empty() ? "this" : line.machine;
  for (const std::string& own : {name, "inputs/machines/" + name + ".yaml"}) {
    std::error_code error;
    if (!line.output.empty() && std::filesystem::equivalent(own, line.output, error))
      throw BadInput("--output " + line.output +
                     " is the machine's own file; legal: another file, which will be like it");
  }
}

// The reader's range; beyond it, what ran wasn't on such a machine.
void check_fit(const MachineFit& fit, const std::vector<MeasuredRun>& runs) {
  for (const double factor : {fit.machine.compute_speed, fit.machine.network_speed})
    if (factor < least_speed || factor > most_speed)
      throw BadInput("--fit: the runs ask for a factor of " + std::to_string(factor) +
                     " of the machine's speed; legal: 0.01 to 100, of runs on such a machine");
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (std::abs(fit.after[i] / runs[i].seconds - 1) > fit.machine.uncertainty) {
      std::printf("  warning: two factors don't explain these runs: see the errors after the fit\n");
      return;
    }
}

void write_machine(const CommandLine& line, const Machine& machine) {
  std::ostringstream text;
  text.precision(8);
  text << "# Written by forge plan --fit: fitted to the steps of";
  for (const std::string& run : line.fit) text << " " << run;
  text << ".\ndescription: " << yaml_text(machine.description + ", fitted to runs")
       << "\nlike: " << yaml_text(line.machine.empty() ? "this" : line.machine)
       << "\ncompute_speed: " << machine.compute_speed << "\nnetwork_speed: " << machine.network_speed << "\n";
  write_text_file(line.output, text.str());
  std::printf("%s\n", line.output.c_str());
}

}  // namespace

Machine fit_to_runs(const CommandLine& line, const Machine& machine) {
  check_output(line);
  std::vector<MeasuredRun> runs;
  for (const std::string& directory : line.fit) {
    const std::filesystem::path path(directory);
    CommandLine run;
    run.inputs = {(path / "deck.yaml").string()};
    const Deck deck = load_deck(run, Needs::training, 0);
    const std::int64_t batch = deck.train.global_batch_sequences;
    runs.push_back({make_setup(deck), median(step_seconds((path / "metrics.jsonl").string(), batch))});
  }
  const MachineFit fit = fit_machine(machine, runs);
  std::printf("fit of %s to the median step of %s\n  %-40s %10s %9s %9s\n", machine.name.c_str(),
              counted(std::ssize(runs), "run").c_str(), "run", "measured", "before", "after");
  for (std::size_t i = 0; i < runs.size(); ++i)
    std::printf("  %-40s %8.3f s %+7.1f %% %+7.1f %%\n", line.fit[i].c_str(), runs[i].seconds,
                100 * (fit.before[i] / runs[i].seconds - 1), 100 * (fit.after[i] / runs[i].seconds - 1));
  std::printf("  compute_speed %.3f, network_speed %.3f, of its file's\n",
              fit.machine.compute_speed / machine.compute_speed, fit.machine.network_speed / machine.network_speed);
  check_fit(fit, runs);
  if (!line.output.empty()) write_machine(line, fit.machine);
  std::printf("\n");
  return fit.machine;
}

}  // namespace forge

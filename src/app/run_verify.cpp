#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "app/job.hpp"
#include "app/open_data.hpp"
#include "app/verbs.hpp"
#include "checkpoint/hf_tensors.hpp"
#include "config/reference.hpp"
#include "core/bytes.hpp"
#include "core/file_errors.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

// What one problem in one precision came to; errors relative to the reference.
struct VerifyOutcome {
  double loss = 0, norm = 0, gradient = 0;  // largest over the steps, and over the parameters of step 1
  double loss_bound = 0, gradient_bound = 0;
  bool passed() const { return loss <= loss_bound && norm <= loss_bound && gradient <= gradient_bound; }
};

double relative(double value, double reference) {
  const double error = std::abs(value - reference) / std::max(std::abs(reference), 1e-300);
  return std::isnan(error) ? HUGE_VAL : error;
}

// fp64, and fp8 with all else in fp64: DESIGN's bounds. fp32: what ten steps of rounding leave, seen from the fp64
// reference: four times as far as the peer's own fp32 run is from it, and never less than 16 eps.
double loss_bound_of(PrecisionName precision, const ReferenceSeries& exact, const ReferenceSeries& single) {
  if (precision != PrecisionName::fp32) return 1e-12;
  double bound = 16 * 1.2e-7;
  for (std::size_t i = 0; i < exact.loss.size(); ++i)
    bound = std::max(
        {bound, 4 * relative(single.loss[i], exact.loss[i]), 4 * relative(single.grad_norm[i], exact.grad_norm[i])});
  return bound;
}

// Gradients of step 1 against gradients.safetensors: max|g − r| over the largest entry of r, but not below a thousandth
// of the largest of all.
template <class T>
double gradient_error(Job<T>& job, const TrainingData& data, const std::string& directory) {
  const FirstBatch first(job.setup, data, job.mesh);
  BatchFeed feed(first.batch);
  job.session->compute_gradients(feed, 1, first.labels);
  WholeTensors<T> tensors = job.whole_tensors();
  return compare_gradients(directory + "/gradients.safetensors", job.setup.units, tensors, job.session->stream());
}

template <class T>
VerifyOutcome run_problem(const Deck& deck, const std::string& directory, const World& world) {
  Watchdog& watchdog = world.watchdog();
  watchdog.set(deadlines_of(deck.machine));
  watchdog.start_other(0, "start");
  auto references = read_reference(directory + "/reference.yaml");
  const ReferenceSeries& exact = references["fp64"];
  RunSetup setup = make_setup(deck, world.rank());
  const TrainingData data = open_data(setup, world);
  prepare_device(setup, RunKind::training, world);
  Job<T> job(setup, RunKind::training, world);
  VerifyOutcome outcome;
  outcome.loss_bound = loss_bound_of(deck.train.precision, exact, references["fp32"]);
  outcome.gradient_bound = deck.train.precision == PrecisionName::fp32 ? 1e-4 : 1e-11;
  watchdog.start_other(1, "gradients");
  outcome.gradient = gradient_error(job, data, directory);
  std::vector<StepRecord> records;
  Trainer<T>(*job.session, data, 1, TrainingLog(nullptr, &records), {}, nullptr, &world).run();
  watchdog.start_other(0, "end");
  if (records.size() != exact.loss.size())
    throw BadInput(directory + ": reference.yaml has " + counted(std::ssize(exact.loss), "step") + ", the deck " +
                   std::to_string(records.size()));
  for (std::size_t i = 0; i < records.size(); ++i) {
    outcome.loss = std::max(
        {outcome.loss, relative(records[i].loss, exact.loss[i]), relative(records[i].total_loss, exact.total_loss[i])});
    outcome.norm = std::max(outcome.norm, relative(records[i].grad_norm, exact.grad_norm[i]));
    outcome.loss =
        std::max(outcome.loss, relative(records[i].learning_rate, exact.learning_rate[i]) > 1e-12 ? HUGE_VAL : 0);
  }
  return outcome;
}

std::vector<std::string> problems_of(const CommandLine& line) {
  std::vector<std::string> problems;
  for (std::string problem : line.inputs) {
    if (!fs::exists(problem) && fs::exists("verify/" + problem)) problem = "verify/" + problem;
    for (const char* file : {"/input.yaml", "/reference.yaml"})
      if (!fs::exists(problem + file))
        throw BadInput(problem + " is no problem of verification, as there is no " + problem + file +
                       "; legal: folders with both, such as verify/llama, or a name below verify/");
    problems.push_back(std::move(problem));
  }
  if (!problems.empty()) return problems;
  if (fs::is_directory("verify"))
    for (const auto& entry : fs::directory_iterator("verify"))
      if (fs::exists(entry.path() / "input.yaml") && fs::exists(entry.path() / "reference.yaml"))
        problems.push_back(entry.path().string());
  if (problems.empty())
    throw BadInput("no problems under verify/; run forge verify in the repository's folder, or name problem folders");
  std::sort(problems.begin(), problems.end());
  return problems;
}

Deck problem_deck(const CommandLine& line, const std::string& problem, const std::string& precision, int ranks) {
  CommandLine one = line;
  one.inputs = {problem + "/input.yaml"};
  if (!precision.empty()) one.set.insert(one.set.begin(), "train.precision=" + precision);
  return load_deck(one, Needs::training, ranks);
}

// A problem's decks by precision: its own one alone where that is fp8, with all else in fp64.
std::vector<std::pair<std::string, Deck>> problem_decks(const CommandLine& line, const std::string& problem,
                                                        int ranks) {
  Deck own = problem_deck(line, problem, "", ranks);
  own.train.fp8_carrier = Fp8Carrier::fp64;
  if (own.train.precision == PrecisionName::fp8) return {{"fp8", std::move(own)}};
  return {{"fp64", problem_deck(line, problem, "fp64", ranks)}, {"fp32", problem_deck(line, problem, "fp32", ranks)}};
}

}  // namespace

void run_verify(const CommandLine& line, const World& world) {
  const bool speaks = world.rank() == 0;
  int failed = 0, run = 0;
  const std::vector<std::string> problems = reading([&] { return problems_of(line); });
  if (speaks) std::printf("%-24s %-5s %10s %10s %10s %10s\n", "problem", "", "loss", "grad norm", "gradients", "bound");
  for (const auto& problem : problems)
    for (const auto& by_precision : problem_decks(line, problem, world.size())) {
      const std::string& precision = by_precision.first;
      const Deck& deck = by_precision.second;
      VerifyOutcome outcome;
      with_compute_type(deck, [&]<class T>(std::type_identity<T>) { outcome = run_problem<T>(deck, problem, world); });
      ++run;
      failed += !outcome.passed();
      if (speaks)
        std::printf("%-24s %-5s %10.2e %10.2e %10.2e %10.2e  %s\n", problem.c_str(), precision.c_str(), outcome.loss,
                    outcome.norm, outcome.gradient, outcome.loss_bound, outcome.passed() ? "ok" : "FAILED");
    }
  if (speaks) std::printf("%d of %d agree with their references\n", run - failed, run);
  if (failed > 0) throw Error(std::to_string(failed) + " verification problems disagree with their references");
}

}  // namespace forge

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "app/device_fit.hpp"
#include "app/end_of_job.hpp"
#include "app/job.hpp"
#include "app/outputs.hpp"
#include "app/process_start.hpp"
#include "app/verbs.hpp"
#include "comm/launcher.hpp"
#include "comm/thread_communicator.hpp"
#include "core/faults.hpp"
#include "core/last_words.hpp"
#include "device/device_memory.hpp"
#include "train/leaving.hpp"
#include "train/stop_request.hpp"

namespace {

using forge::CommandLine;
using forge::Verb;

// What all ranks have agreed to leave for, if they have.
struct LeftFor {
  std::string text;
  int code;
};
using Left = std::optional<LeftFor>;

// The verbs of several ranks, but for train.
struct JobVerb {
  Verb verb;
  void (*run)(const CommandLine& line, const forge::World& world);
};
constexpr JobVerb jobs[] = {{Verb::gradients, forge::run_gradients}, {Verb::evaluate, forge::run_evaluate},
                            {Verb::score, forge::run_score},         {Verb::replay, forge::run_replay},
                            {Verb::calibrate, forge::run_calibrate}, {Verb::check, forge::run_check},
                            {Verb::generate, forge::run_generate},   {Verb::verify, forge::run_verify}};

// The verbs that are no job of ranks.
struct VerbAlone {
  Verb verb;
  void (*run)(const CommandLine& line);
};
constexpr VerbAlone alone[] = {
    {Verb::show, forge::run_show},         {Verb::plan, forge::run_plan},
    {Verb::tokenize, forge::run_tokenize}, {Verb::export_model, forge::run_export},
    {Verb::report, forge::run_report},     {Verb::verify_checkpoint, forge::run_verify_checkpoint},
    {Verb::help, forge::run_help},         {Verb::version, forge::run_version}};

// A verb that needs a model, as one of the ranks. Of what it throws nothing else is caught here or further up.
Left run_as_rank(const CommandLine& line, const forge::World& world) {
  try {
    const auto known =
        std::find_if(std::begin(jobs), std::end(jobs), [&](const JobVerb& job) { return job.verb == line.verb; });
    (known == std::end(jobs) ? forge::run_train : known->run)(line, world);
  } catch (const forge::LeftOnInterrupt& left) {
    return LeftFor{left.what(), forge::LeftOnInterrupt::exit_code};
  } catch (const forge::LeftOnSignal& left) {
    return LeftFor{left.what(), static_cast<int>(left.code())};
  }
  return {};
}

// --ranks: every rank is a thread of this process.
Left run_as_threads(const CommandLine& line, const forge::Environment& environment) {
  const std::string option = "--ranks " + std::to_string(line.ranks);
  if (environment.size() > 1)
    throw forge::BadInput(option + " makes ranks of one process's threads, but a launcher started " +
                          std::to_string(environment.size()) + " processes; legal: --ranks or a launcher, not both");
  if (std::string(forge::device_info().kind) == "cuda")
    throw forge::BadInput(option + ": the CUDA build has one process per GPU; start them with mpirun -n " +
                          std::to_string(line.ranks) + " or srun --ntasks=" + std::to_string(line.ranks) +
                          ", or use the CPU build");
  environment.watchdog().set({0, 0});  // each rank has its own
  forge::ThreadPost post(line.ranks);
  Left left;
  const auto rank = [&](forge::Communicator& ranks) {
    forge::Watchdog watchdog(forge::deadlines_of(line), "start", [&](const forge::Watchdog::Missed& missed) {
      forge::end_hanging_job(missed, &environment);
    });
    watchdog.join(ranks.rank(), ranks.size(), post.mail_of(ranks.rank()));
    const Left mine = run_as_rank(line, forge::ThreadRank(ranks, watchdog));
    watchdog.leave();
    if (ranks.rank() == 0) left = mine;
  };
  forge::run_ranks(line.ranks, rank);
  return left;
}

// The verbs of several ranks. A rank that fails alone tells it at once and ends the others, which wait for it: nothing
// that it throws is unwound.
int run_job(const CommandLine& line, int& argc, char**& argv) {
  std::atomic<const forge::Environment*> job{nullptr};
  const forge::LastWords last_words([&](const std::exception_ptr& error) { forge::end_failed_job(error, job.load()); });
  forge::Watchdog watchdog(forge::deadlines_of(line), "start",
                           [&](const forge::Watchdog::Missed& missed) { forge::end_hanging_job(missed, job.load()); });
  forge::refuse_more_than_is_left(std::size_t{48} << 20, "MPI and forge's other libraries");  // some die without it
  forge::Environment environment(argc, argv, watchdog);
  job = &environment;
  forge::inject_fault(environment.rank(), "start");
  const bool as_threads = line.ranks > 0 && line.verb != Verb::replay;
  const Left left = as_threads ? run_as_threads(line, environment) : run_as_rank(line, environment);
  if (!left) return static_cast<int>(forge::ExitCode::done);
  const char* const then = left->text.starts_with("saved ") ? "; --restart goes on from there" : "";
  if (environment.rank() == 0) forge::print_message("stopped", 0, left->text + then);
  return left->code;
}

// False: the verb is one of several ranks.
bool run_alone(const CommandLine& line) {
  const auto known =
      std::find_if(std::begin(alone), std::end(alone), [&](const VerbAlone& a) { return a.verb == line.verb; });
  if (known != std::end(alone)) known->run(line);
  return known != std::end(alone);
}

// The first Ctrl-C is answered at once: a step may take minutes.
void tell_interrupt(int signal, bool ends) {
  if (signal != SIGINT || forge::launched_rank() != 0) return;
  forge::print_message(
      "SIGINT", 0,
      ends ? "a second one: ends now, without saving"
           : "saves at the end of the step and ends; one more, a second later, ends it at once, without saving");
}

// Before MPI starts, which takes seconds on many nodes: a training that is told to leave must not fail instead. What a
// training writes it writes on without a reader of its screen, and beyond a limit of a file's size with an error.
std::unique_ptr<forge::StopListener> listen_to_signals(Verb verb) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (verb != Verb::train) return std::make_unique<forge::StopListener>();
  std::signal(SIGPIPE, SIG_IGN);
  return std::make_unique<forge::StopListener>(tell_interrupt);
}

int run(int argc, char** argv) {
  CommandLine line;
  std::unique_ptr<forge::StopListener> listener;
  try {
    line = forge::parse_command_line(argc, argv);
    listener = listen_to_signals(line.verb);
    if (run_alone(line)) return static_cast<int>(forge::ExitCode::done);
  } catch (...) {
    const forge::Failure failure = forge::failure_of(std::current_exception());
    forge::wait_for_turn(forge::launched_rank());
    forge::print_message("error", forge::launched_rank(), failure.text);
    return static_cast<int>(failure.code);
  }
  return run_job(line, argc, argv);
}

// Whoever was promised an output gets it, or an exit code that says so.
int run_program(int argc, char** argv) {
  forge::keep_standard_descriptors();
  const int code = run(argc, argv);
  const std::string lost = forge::lost_output();
  if (lost.empty() || code != static_cast<int>(forge::ExitCode::done)) return code;
  forge::print_message("error", forge::launched_rank(), lost + "; a training's log.txt has its output");
  return static_cast<int>(forge::ExitCode::io_failed);
}

}  // namespace

int main(int argc, char** argv) {
  return forge::run_process(run_program, argc, argv);
}

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "app/verbs.hpp"
#include "comm/environment.hpp"
#include "comm/thread_communicator.hpp"
#include "core/error.hpp"
#include "device/memory.hpp"
#include "train/stop_request.hpp"

namespace {

// Half a second; two where the launcher has sent SIGTERM, as it may kill this rank only after one.
void let_first_rank_speak() {
  constexpr int turn = 10, usual = 500, ending = 2000;  // milliseconds
  for (int waited = 0; waited < (forge::stop_signal() == 0 ? usual : ending); waited += turn) usleep(1000 * turn);
}

// One message per job: the first rank speaks; another rank waits a moment, for the case that all failed alike.
void print_error(const forge::Environment* environment, const std::string& text, const char* kind = "error") {
  const int rank = environment ? environment->rank() : 0;
  if (rank > 0) let_first_rank_speak();
  std::fflush(stdout);
  const std::string who = rank > 0 ? " (rank " + std::to_string(rank) + ")" : "";
  std::fprintf(stderr, "forge: %s%s: %s\n", kind, who.c_str(), text.c_str());
  std::fflush(stderr);
}

// A verb that needs a model, as one of the ranks.
void run_as_rank(const forge::CommandLine& line, const forge::World& world) {
  using forge::Verb;
  switch (line.verb) {
    case Verb::gradients:
      return forge::run_gradients(line, world);
    case Verb::evaluate:
      return forge::run_evaluate(line, world);
    case Verb::generate:
      return forge::run_generate(line, world);
    case Verb::verify:
      return forge::run_verify(line, world);
    default:
      return forge::run_train(line, world);
  }
}

// --ranks: every rank is a thread of this process.
void run_as_threads(const forge::CommandLine& line, const forge::Environment& environment) {
  const std::string option = "--ranks " + std::to_string(line.ranks);
  if (environment.size() > 1)
    throw forge::BadInput(option + " makes ranks of one process's threads, but a launcher started " +
                          std::to_string(environment.size()) + " processes; legal: --ranks or a launcher, not both");
  if (std::string(forge::device_info().kind) == "cuda")
    throw forge::BadInput(option + ": the CUDA build has one process per GPU; start them with mpirun -n " +
                          std::to_string(line.ranks) + " or srun --ntasks=" + std::to_string(line.ranks) +
                          ", or use the CPU build");
  forge::run_ranks(line.ranks, [&](forge::Communicator& ranks) { run_as_rank(line, forge::ThreadRank(ranks)); });
}

void run(const forge::CommandLine& line, std::unique_ptr<forge::Environment>& environment, int& argc, char**& argv) {
  using forge::Verb;
  switch (line.verb) {
    case Verb::show:
      return forge::run_show(line);
    case Verb::tokenize:
      return forge::run_tokenize(line);
    case Verb::export_model:
      return forge::run_export(line);
    case Verb::verify_checkpoint:
      return forge::run_verify_checkpoint(line);
    case Verb::help:
      return forge::run_help(line);
    case Verb::version:
      return forge::run_version();
    default:
      break;
  }
  // Before MPI starts, which takes seconds on many nodes: a job that is told to leave must not fail instead.
  if (line.verb == Verb::train) forge::catch_stop_signals();
  environment = std::make_unique<forge::Environment>(argc, argv);
  if (line.ranks > 0) return run_as_threads(line, *environment);
  run_as_rank(line, *environment);
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<forge::Environment> environment;
  int code = static_cast<int>(forge::ExitCode::done);
  try {
    run(forge::parse_command_line(argc, argv), environment, argc, argv);
  } catch (const forge::Error& error) {
    code = static_cast<int>(error.code());
    // Every rank has saved, and leaves by itself.
    if (error.code() == forge::ExitCode::saved_on_signal) {
      if (!environment || environment->rank() == 0) print_error(environment.get(), error.what(), "stopped");
      return code;
    }
    const bool internal = error.code() == forge::ExitCode::internal;
    print_error(environment.get(), internal ? std::string(error.what()) + " [" + error.where() + "]" : error.what());
  } catch (const std::exception& error) {
    print_error(environment.get(), error.what());
    code = static_cast<int>(forge::ExitCode::internal);
  }
  // A rank that fails alone must not leave the others waiting for it.
  if (code != 0 && environment && environment->size() > 1) environment->abort(code);
  return code;
}

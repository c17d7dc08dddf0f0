#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "app/verbs.hpp"
#include "core/error.hpp"

namespace {

// One message per job: the first rank speaks; another rank waits a moment, for the case that all failed alike.
void print_error(const forge::Environment* environment, const std::string& text) {
  const int rank = environment ? environment->rank() : 0;
  if (rank > 0) usleep(500000);
  std::fflush(stdout);
  const std::string who = rank > 0 ? " (rank " + std::to_string(rank) + ")" : "";
  std::fprintf(stderr, "forge: error%s: %s\n", who.c_str(), text.c_str());
  std::fflush(stderr);
}

void run(const forge::CommandLine& line, std::unique_ptr<forge::Environment>& environment, int& argc, char**& argv) {
  using forge::Verb;
  switch (line.verb) {
    case Verb::show:
      return forge::run_show(line);
    case Verb::tokenize:
      return forge::run_tokenize(line);
    case Verb::help:
      return forge::run_help(line);
    case Verb::version:
      return forge::run_version();
    default:
      break;
  }
  environment = std::make_unique<forge::Environment>(argc, argv);
  switch (line.verb) {
    case Verb::gradients:
      return forge::run_gradients(line, *environment);
    case Verb::evaluate:
      return forge::run_evaluate(line, *environment);
    case Verb::generate:
      return forge::run_generate(line, *environment);
    case Verb::verify:
      return forge::run_verify(line, *environment);
    default:
      return forge::run_train(line, *environment);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<forge::Environment> environment;
  int code = static_cast<int>(forge::ExitCode::done);
  try {
    run(forge::parse_command_line(argc, argv), environment, argc, argv);
  } catch (const forge::Error& error) {
    const bool internal = error.code() == forge::ExitCode::internal;
    print_error(environment.get(), internal ? std::string(error.what()) + " [" + error.where() + "]" : error.what());
    code = static_cast<int>(error.code());
  } catch (const std::exception& error) {
    print_error(environment.get(), error.what());
    code = static_cast<int>(forge::ExitCode::internal);
  }
  // A rank that fails alone must not leave the others waiting for it.
  if (code != 0 && environment && environment->size() > 1) environment->abort(code);
  return code;
}

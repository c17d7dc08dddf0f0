#pragma once

#include <exception>
#include <string>

#include "comm/environment.hpp"

namespace forge {

// "forge: KIND: TEXT" on standard error, with the rank where it isn't the first one.
void print_message(const char* kind, int rank, const std::string& text);

// A message of all ranks of a job is printed once: the first rank prints at once and ends the job; any other rank waits
// for its turn, which comes only where the first hasn't done so. `least`: the shortest wait, in milliseconds.
void wait_for_turn(int rank, int least = 1000);

// The exit code of an exception, and its message for people.
struct Failure {
  ExitCode code;
  std::string text;
};
Failure failure_of(const std::exception_ptr& error);

// Prints an uncaught exception, and ends every rank of the job with its code. `job` is null before MPI is up.
[[noreturn]] void end_failed_job(const std::exception_ptr& error, const Environment* job);

// For the watchdog that missed a deadline: prints the silent ranks and the others' activities, and ends the job.
// `world`: the rank's, null before MPI is up.
[[noreturn]] void end_hanging_job(const Watchdog::Missed& missed, const World* world);

}  // namespace forge

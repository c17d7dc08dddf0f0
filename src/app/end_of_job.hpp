#pragma once

#include <exception>
#include <string>

#include "comm/environment.hpp"

namespace forge {

// "forge: KIND: TEXT" on standard error, with the rank where it isn't the first one.
void print_message(const char* kind, int rank, const std::string& text);

// What all ranks of a job say is said once: the first rank speaks at once; another one waits for its turn, and where
// the first has spoken it doesn't live that long. `least`: milliseconds of that.
void wait_for_turn(int rank, int least = 1000);

// The code of an exception, and what people are told of it.
struct Failure {
  ExitCode code;
  std::string text;
};
Failure failure_of(const std::exception_ptr& error);

// Tells an exception that nobody caught, and ends every rank of the job with its code. `job` is null before MPI is up.
[[noreturn]] void end_failed_job(const std::exception_ptr& error, const Environment* job);

// Of the watchdog that missed a deadline: tells who doesn't answer and what the others do, and ends the job. `world`:
// the rank's, null before MPI is up.
[[noreturn]] void end_hanging_job(const Watchdog::Missed& missed, const World* world);

}  // namespace forge

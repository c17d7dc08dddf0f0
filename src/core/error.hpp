#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace forge {

// Exit codes of the process (docs/running.md).
enum class ExitCode : int {
  done = 0,
  internal = 1,          // a defect of forge itself
  bad_input = 2,         // deck, data or command line
  no_checkpoint = 3,     // no usable checkpoint
  not_finite = 4,        // stopped on NaN or Inf
  io_failed = 5,         // input or output failed
  library_failed = 6,    // a device, or MPI, NCCL, cuBLAS, oneDNN
  replicas_differ = 7,   // ranks that must hold the same numbers don't
  check_failed = 8,      // forge check: ranks or nodes that are slow or wrong
  saved_on_signal = 75,  // saved and left
  deadline_missed = 86,  // a rank missed its deadline
};

// Every failure of forge: a text for people, the exit code, and where it was thrown.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text, ExitCode code = ExitCode::internal,
                 std::source_location where = std::source_location::current());
  ExitCode code() const { return code_; }
  // "src/file.cpp:12 (function)": for internal errors; bad input names its own file and key.
  const std::string& where() const { return where_; }

 private:
  ExitCode code_;
  std::string where_;
};

// An error with this exit code.
template <ExitCode given>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& text, std::source_location where = std::source_location::current())
      : Error(text, given, where) {}
};

// The deck, the data or the command line is wrong (exit code 2).
using BadInput = ErrorOf<ExitCode::bad_input>;
// Reading or writing a file failed (exit code 5).
using IoFailed = ErrorOf<ExitCode::io_failed>;
// A device, or a library that drives one or communicates, failed (exit code 6): another start may do well.
using LibraryFailed = ErrorOf<ExitCode::library_failed>;
// All ranks leave together, because somebody asked for it, and nothing is wrong (exit code 75).
using LeftOnSignal = ErrorOf<ExitCode::saved_on_signal>;

// An invariant of forge's own; a message without a cause in the input is a defect.
inline void require(bool holds, const char* text, std::source_location where = std::source_location::current()) {
  if (!holds) throw Error(text, ExitCode::internal, where);
}

}  // namespace forge

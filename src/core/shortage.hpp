#pragma once

#include "core/error.hpp"

namespace forge {

// The code of a failure for want of memory, threads or files. Before a run's first step is done, another deck, limit or
// machine is needed (2); later another start may do well (6).
ExitCode code_of_shortage();
// The first step is done.
void note_first_step();

// The system gives no memory, thread or file: a text with the amounts needed and available.
class Shortage : public Error {
 public:
  explicit Shortage(const std::string& text, std::source_location where = std::source_location::current())
      : Error(text, code_of_shortage(), where) {}
};

}  // namespace forge

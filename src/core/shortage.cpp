#include "core/shortage.hpp"

#include <atomic>

namespace forge {

namespace {

std::atomic<bool> has_stepped{false};  // of the process, as its exit code is

}  // namespace

ExitCode code_of_shortage() {
  return has_stepped ? ExitCode::library_failed : ExitCode::bad_input;
}
void note_first_step() {
  has_stepped = true;
}

}  // namespace forge

#include "core/last_words.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace forge {

namespace {

// A terminate handler reaches no object.
std::function<void(const std::exception_ptr&)> speaker;
std::atomic<bool> spoken{false};
thread_local bool speaking = false;

[[noreturn]] void on_terminate() {
  if (speaking) std::_Exit(EXIT_FAILURE);  // not even that worked
  if (spoken.exchange(true))
    for (;;) pause();  // another thread is about to end the process
  speaking = true;
  speaker(std::current_exception());
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

LastWords::LastWords(std::function<void(const std::exception_ptr&)> speak) {
  speaker = std::move(speak);
  before_ = std::set_terminate(on_terminate);
}

LastWords::~LastWords() {
  std::set_terminate(before_);
}

bool LastWords::wanted() {
  return std::get_terminate() == on_terminate;
}

void LastWords::speak_now() {
  if (wanted()) std::terminate();
}

}  // namespace forge

#include "core/last_words.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "core/left_over.hpp"

namespace forge {

namespace {

// A terminate handler reaches no object.
std::function<void(const std::exception_ptr&)> speaker;
std::atomic<bool> spoken{false};
std::mutex acting;
std::function<void()> last_act;  // under `acting`
thread_local bool speaking = false;

// The message comes whatever happens here. What is left over goes first: it may have filled the disk.
void do_last_act() {
  try {
    remove_left_overs();
  } catch (...) {
  }
  try {
    const std::lock_guard lock(acting);
    if (last_act) last_act();
  } catch (...) {
  }
}

[[noreturn]] void on_terminate() {
  if (speaking) std::_Exit(EXIT_FAILURE);  // not even that worked
  if (spoken.exchange(true))
    for (;;) pause();  // another thread is about to end the process
  speaking = true;
  const std::exception_ptr error = std::current_exception();
  do_last_act();
  try {
    speaker(error);
  } catch (...) {  // out of memory: C++ would abort
  }
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

LastAct::LastAct(std::function<void()> act) {
  const std::lock_guard lock(acting);
  last_act = std::move(act);
}

void LastAct::perform(const std::exception_ptr& error, std::chrono::milliseconds most) {
  const auto done = std::make_shared<std::promise<void>>();
  std::thread([error, done] {
    try {
      std::rethrow_exception(error);
    } catch (...) {
      do_last_act();
    }
    done->set_value();
  }).detach();
  done->get_future().wait_for(most);
}

LastAct::~LastAct() {
  const std::lock_guard lock(acting);
  last_act = nullptr;
}

}  // namespace forge

#include "train/stop_request.hpp"

#include <signal.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/error.hpp"

namespace forge {

namespace {

// What a handler may touch: a signal reaches no object.
volatile sig_atomic_t terminated = 0, user = 0;

void note(int signal) {
  if (signal == SIGTERM) terminated = 1;
  if (signal == SIGUSR1) user = 1;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGUSR1})
    if (sigaction(signal, &action, nullptr) != 0) throw Error(std::string("sigaction failed: ") + std::strerror(errno));
}

}  // namespace

void catch_stop_signals() {
  set_handler(note);
}

void release_stop_signals() {
  set_handler(SIG_DFL);
  if (const int signal = stop_signal(); signal != 0) raise(signal);
}

int stop_signal() {
  return terminated != 0 ? SIGTERM : user != 0 ? SIGUSR1 : 0;
}

const char* name_of_signal(int signal) {
  return signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

std::int64_t job_end_time() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  if (!text) return 0;
  std::int64_t seconds = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, seconds);
  return error == std::errc() && stop == end && seconds > 0 ? seconds : 0;
}

}  // namespace forge

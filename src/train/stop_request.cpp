#include "train/stop_request.hpp"

#include <signal.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "core/error.hpp"

namespace forge {

namespace {

// The signal that has arrived, of the process; SIGTERM replaces SIGUSR1, never the other way round.
std::atomic<int> arrived{0};

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  return signals;
}

void set_blocked(int how) {
  const sigset_t signals = stop_signals();
  if (const int error = pthread_sigmask(how, &signals, nullptr); error != 0)
    throw Error(std::string("pthread_sigmask failed: ") + std::strerror(error));
}

}  // namespace

void catch_stop_signals() {
  set_blocked(SIG_BLOCK);
}

void release_stop_signals() {
  set_blocked(SIG_UNBLOCK);
  if (const int signal = arrived; signal != 0) raise(signal);
}

int stop_signal() {
  const sigset_t signals = stop_signals();
  const timespec now{};
  for (int signal = sigtimedwait(&signals, nullptr, &now); signal > 0; signal = sigtimedwait(&signals, nullptr, &now)) {
    int none = 0;
    if (signal == SIGTERM)
      arrived = signal;
    else
      arrived.compare_exchange_strong(none, signal);
  }
  return arrived;
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

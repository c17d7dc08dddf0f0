#include "train/stop_request.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/error.hpp"
#include "core/left_over.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

struct StopSignal {
  int number;
  const char* name;
};
// The later one counts.
constexpr std::array<StopSignal, 4> all_signals{
    {{SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}}};

// Of the process.
std::atomic<bool> listens{false}, asks{false};
std::atomic<int> weight{0};      // of what has asked
std::mutex taking;               // whoever takes a signal from the system has noted it before another one looks
int interrupts = 0, untold = 0;  // under `taking`: requests by SIGINT; what the listener has not told yet
std::chrono::steady_clock::time_point first_interrupt;
sigset_t caught;   // set before threads are made
int wake_up = -1;  // the listener: an eventfd

// Signals that whoever started the process had it ignore: nohup, and shells for what runs behind a script. They are
// noted before the constructors of libraries run, since that of PSM2, which Open MPI loads, puts a handler in the place
// of SIGHUP's.
bool hangup_ignored = false, interrupt_ignored = false;
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}
void note_ignored() {
  hangup_ignored = is_ignored(SIGHUP);
  interrupt_ignored = is_ignored(SIGINT);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = note_ignored;

void set_blocked(int how, const sigset_t& signals) {
  if (const int error = pthread_sigmask(how, &signals, nullptr); error != 0)
    throw Error(std::string("pthread_sigmask failed: ") + std::strerror(error));
}

[[noreturn]] void end_of(int number) {
  remove_left_overs();
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  signal(number, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(number);
  constexpr int of_shells = 128;
  std::_Exit(of_shells + number);
}

// Ctrl-C in a terminal reaches a whole group of processes, and a launcher among them sends its ranks one more.
void note_interrupt() {
  constexpr std::chrono::seconds same{1};
  const auto now = std::chrono::steady_clock::now();
  if (interrupts > 0 && now - first_interrupt < same) return;
  if (interrupts++ == 0) first_interrupt = now;
}

// Notes what has arrived; whether there was anything.
bool take() {
  const std::lock_guard lock(taking);
  const timespec now{};
  bool any = false;
  for (int number = sigtimedwait(&caught, nullptr, &now); number > 0; number = sigtimedwait(&caught, nullptr, &now)) {
    if (!asks) end_of(number);
    any = true;
    if (number == SIGINT) note_interrupt();
    if (weight_of_signal(number) <= weight) continue;
    weight = weight_of_signal(number);
    untold = number;
  }
  return any;
}

void wake() {
  const std::uint64_t one = 1;
  if (::write(wake_up, &one, sizeof one) != sizeof one)
    throw Error("the thread that listens to signals can't be woken");
}

}  // namespace

StopListener::StopListener(Tell tell) : tell_(std::move(tell)) {
  sigemptyset(&caught);
  for (const StopSignal& one : all_signals) {
    const bool ignored = (one.number == SIGHUP && hangup_ignored) || (one.number == SIGINT && interrupt_ignored);
    if (ignored)
      signal(one.number, SIG_IGN);
    else
      sigaddset(&caught, one.number);
  }
  set_blocked(SIG_BLOCK, caught);
  signals_ = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_up = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signals_ < 0 || wake_up < 0)
    throw LibraryFailed(std::string("signals can't be waited for: ") + std::strerror(errno));
  asks = static_cast<bool>(tell_);
  listens = true;
  thread_ = std::thread([this] { listen(); });
}

StopListener::~StopListener() {
  listens = false;
  wake();
  thread_.join();
  close(signals_);
  close(wake_up);
}

void StopListener::listen() {
  pollfd waits[] = {{signals_, POLLIN, 0}, {wake_up, POLLIN, 0}};
  while (listens) {
    if (poll(waits, 2, -1) < 0) continue;
    std::uint64_t times = 0;
    if (waits[1].revents != 0 && read(wake_up, &times, sizeof times) < 0) continue;
    take();
    int signal = 0;
    bool ends = false;
    {
      const std::lock_guard lock(taking);
      signal = std::exchange(untold, 0);
      ends = interrupts > 1;
    }
    if (ends && tell_) tell_(SIGINT, true);
    if (ends) end_of(SIGINT);
    if (signal != 0 && tell_) tell_(signal, false);
  }
}

void end_on_stop_signals() {
  asks = false;
  if (const int signal = stop_signal(); signal != 0) end_of(signal);
}

int stop_signal() {
  if (listens && take()) wake();
  return signal_of_weight(weight);
}

const char* name_of_signal(int signal) {
  const int found = weight_of_signal(signal);
  return found > 0 ? all_signals[to_size(found - 1)].name : "no signal";
}

int weight_of_signal(int signal) {
  for (std::size_t i = 0; i < all_signals.size(); ++i)
    if (all_signals[i].number == signal) return static_cast<int>(i) + 1;
  return 0;
}

int signal_of_weight(int weight) {
  return weight > 0 && to_size(weight) <= all_signals.size() ? all_signals[to_size(weight - 1)].number : 0;
}

std::int64_t job_end_time() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  std::int64_t seconds = 0;
  return text && reads_as(text, seconds) && seconds > 0 ? seconds : 0;
}

}  // namespace forge

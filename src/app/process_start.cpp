#include "app/process_start.hpp"

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "app/end_of_job.hpp"
#include "comm/launcher.hpp"
#include "core/shortage.hpp"
#include "device/memory_left.hpp"
#include "device/threads.hpp"

namespace forge {

namespace {

std::atomic<bool> ends{false};

void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool memory_is_short() {
  constexpr std::size_t little = std::size_t{64} << 20;
  for (const auto& left : {node_memory_left(), addresses_left()})
    if (left && left->bytes < little) return true;
  return false;
}

// OpenMP's library calls exit() where the system gives it no thread, and MPI's where it doesn't start.
void end_for_library() {
  if (ends) return;
  const bool shortage = threads_start() || memory_is_short();
  print_message("error", launched_rank(),
                "a library has ended the process; " + memory_left_text() + "; " + threads_left_text());
  std::_Exit(static_cast<int>(shortage ? code_of_shortage() : ExitCode::library_failed));
}

// The first thread, whose stack stays small, waits for one that does the work, and leaves all signals to it.
int run_in_thread(int (*program)(int, char**), int argc, char** argv) {
  int code = 0;
  std::thread thread;
  try {
    thread = std::thread([&] { code = program(argc, argv); });
  } catch (const std::system_error&) {
    const Failure failure = failure_of(std::current_exception());
    print_message("error", launched_rank(), failure.text);
    return static_cast<int>(failure.code);
  }
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  thread.join();
  return code;
}

}  // namespace

int run_process(int (*program)(int argc, char** argv), int argc, char** argv) {
  raise_open_files();
  std::atexit(end_for_library);
  const int code = set_stacks() ? program(argc, argv) : run_in_thread(program, argc, argv);
  expect_end();
  return code;
}

void expect_end() {
  ends = true;
}

}  // namespace forge

#include "device/threads.hpp"

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/bytes.hpp"
#include "core/shortage.hpp"
#include "core/to_size.hpp"
#include "device/memory_left.hpp"

namespace forge {

bool set_stacks() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const bool set = pthread_setattr_default_np(&attributes) == 0;
  pthread_attr_destroy(&attributes);
  rlimit limit{};
  if (!set || getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= stack_bytes) return true;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, stack_bytes);
  return setrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == stack_bytes;
}

namespace {

std::atomic<bool> starting{false};

// Whether the system gives so many threads at once. OpenMP's library would end the process where it doesn't.
void try_threads(int count) {
  std::atomic<bool> open{false};
  std::vector<std::thread> made;
  made.reserve(to_size(count));
  bool enough = true;
  try {
    while (made.size() < to_size(count)) made.emplace_back([&] { open.wait(false); });
  } catch (const std::system_error&) {
    enough = false;
  }
  const std::string left = enough ? "" : threads_left_text();
  open = true;
  open.notify_all();
  for (std::thread& thread : made) thread.join();
  if (!enough)
    throw Shortage("machine.threads: " + std::to_string(count + 1) + " threads for a rank, but the system gives only " +
                   std::to_string(made.size() + 1) + ": " + left +
                   "; legal: fewer threads (machine.threads, OMP_NUM_THREADS) or ranks, or higher limits");
}

std::size_t stack_of_this_thread() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return stack_bytes;
  std::size_t bytes = 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

}  // namespace

bool threads_start() {
  return starting;
}

void start_threads(int threads) {
  if (threads == 1) return;
  static std::mutex one_rank_at_a_time;
  const std::lock_guard lock(one_rank_at_a_time);
  try_threads(threads - 1);
  starting = true;
  std::size_t least = stack_bytes;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(min : least)
  for (int i = 0; i < threads; ++i)
    if (omp_get_thread_num() > 0) least = std::min(least, stack_of_this_thread());
  starting = false;
  if (least < least_stack_bytes)
    throw BadInput("OMP_STACKSIZE: threads of OpenMP have stacks of " + format_bytes(least) +
                   "; legal: " + format_bytes(least_stack_bytes) + " or more, or OMP_STACKSIZE unset (" +
                   format_bytes(stack_bytes) + ")");
}

}  // namespace forge

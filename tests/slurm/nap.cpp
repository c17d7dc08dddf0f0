// sched_yield() that sleeps for a moment, longer each time that nothing has happened in between. Open MPI's ranks yield
// while they wait, where several share a core. On Linux 6.18 dozens of ranks that yield beside other work have kept the
// kernel's own threads from running for a minute: addresses of nodes were no longer resolved, and connections failed. A
// rank that sleeps takes part in the scheduler's fairness like any other process; 32 that look ten thousand times a
// second still fill two cores.
#include <algorithm>
#include <ctime>

namespace {

constexpr long least = 50'000, most = 1'000'000, work = 200'000;  // ns

long now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

extern "C" int sched_yield() noexcept {
  thread_local long nap = least, woke = 0;
  nap = now() - woke < work ? std::min(2 * nap, most) : least;
  const timespec moment{0, nap};
  nanosleep(&moment, nullptr);
  woke = now();
  return 0;
}

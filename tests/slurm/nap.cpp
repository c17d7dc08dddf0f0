// sched_yield() that sleeps for a moment. Open MPI's ranks yield while they wait, where several share a core. On
// Linux 6.18 dozens of ranks that yield beside other work have kept the kernel's own threads from running for a minute:
// addresses of nodes were no longer resolved, and connections failed. A rank that sleeps takes part in the scheduler's
// fairness like any other process.
#include <ctime>

extern "C" int sched_yield() noexcept {
  const timespec moment{0, 100'000};
  nanosleep(&moment, nullptr);
  return 0;
}

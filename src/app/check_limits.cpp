#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "app/checks.hpp"
#include "app/job.hpp"
#include "core/bytes.hpp"
#include "device/device_memory.hpp"

namespace forge {

namespace {

// "" where the limit is at least `least`.
std::string below(int resource, const char* name, rlim_t least, const char* command) {
  rlimit limit{};
  if (getrlimit(static_cast<decltype(RLIMIT_NOFILE)>(resource), &limit) != 0 || limit.rlim_cur >= least) return "";
  return std::string(name) + " " + std::to_string(limit.rlim_cur) + ", of which jobs want " +
         (least == RLIM_INFINITY ? "any number" : std::to_string(least)) + " (" + command + "); ";
}

std::string limits_of_rank(const World& world, int threads) {
  std::string text = below(RLIMIT_NOFILE, "open files", 1024, "ulimit -n");
  text += below(RLIMIT_FSIZE, "blocks of a file", RLIM_INFINITY, "ulimit -f");
  // Network adapters lock the memory that they read.
  if (world.nodes() > 1) text += below(RLIMIT_MEMLOCK, "bytes of locked memory", rlim_t{64} << 20, "ulimit -l");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (device_info().capability == 0 && threads * world.local_size() > cores)
    text += formatted("%d ranks of %d threads on %d cores; ", world.local_size(), threads, cores);
  if (text.size() > 2) text.resize(text.size() - 2);
  return text;
}

// Seconds since 1970 at the end of a barrier.
double time_of_all(Communicator& ranks) {
  ranks.barrier();
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void check_limits(Checks& checks, const Deck& deck) {
  const World& world = checks.world();
  checks.find("limits", Verdict::low, limits_of_rank(world, threads_of(deck, world)),
              "open files, file sizes, locked memory, threads", false);
  const double mine = time_of_all(checks.ranks());
  double first = mine;
  checks.ranks().min_host({&first, 1});
  // Nodes wait for a lock's holder by their own clocks.
  constexpr double most = 2;
  checks.find("clocks", Verdict::low,
              mine - first > most ? formatted("%.0f s later than the earliest", mine - first) : "",
              "of all nodes within 2 s", false);
}

}  // namespace forge

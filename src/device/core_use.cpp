#include "device/core_use.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <system_error>

#include "device/threads.hpp"

namespace forge {

namespace {

// Of this process.
int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

constexpr int most_idle_threads = 64;

}  // namespace

std::optional<double> seconds_without_core() {
  std::ifstream in("/proc/thread-self/schedstat");
  double ran = 0, waited = 0;  // nanoseconds
  if (!(in >> ran >> waited)) return {};
  return 1e-9 * waited;
}

double cores_of_rank(int ranks_of_node) {
  const auto node = static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return std::min<double>(allowed_cores(), node / ranks_of_node);
}

ShortWaits::ShortWaits() {
  const int count = allowed_cores() + 1;
  if (count > most_idle_threads) return;
  try {
    team_ = std::thread([this, count] {
      try {
        start_threads(count);
      } catch (const std::exception&) {  // no threads, no short waits
        return;
      }
      ends_.wait(false);
    });
  } catch (const std::system_error&) {
  }
}

ShortWaits::~ShortWaits() {
  ends_ = true;
  ends_.notify_all();
  if (team_.joinable()) team_.join();
}

}  // namespace forge

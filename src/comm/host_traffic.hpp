#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace forge {

// Messages of host values that a rank has sent and received, and their bytes, by the trees that MPI's libraries use
// (Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005): counted for
// every implementation alike, so that threads tell how a job of processes grows. Any threads add.
class HostTraffic {
 public:
  std::int64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  std::int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  // Adds a reduction of `n` ranks' `bytes`. Recursive doubling: ⌈log₂ n⌉ rounds, in each a rank sends and receives.
  void add_reduction(int n, std::int64_t bytes) { add(2 * rounds(n), 2 * rounds(n) * bytes); }
  // Adds a gather: as many rounds, with all bytes gathered before: (n − 1) · bytes in all.
  void add_gather(int n, std::int64_t bytes) { add(2 * rounds(n), 2 * (n - 1) * bytes); }
  // Adds a broadcast by a binomial tree; `place`: (rank − root) mod n.
  void add_broadcast(int n, int place, std::int64_t bytes) {
    const std::int64_t messages = children(n, place) + (place > 0);
    add(messages, messages * bytes);
  }
  // Adds a collection by this tree, towards its root: every rank sends the values of all below it.
  void add_collection(int n, int place, std::int64_t bytes) {
    const std::int64_t below = place == 0 ? n : std::min<std::int64_t>(n - place, place & -place);
    add(children(n, place) + (place > 0), ((below - 1) + (place > 0 ? below : 0)) * bytes);
  }
  // Adds messages straight from one rank to another.
  void add(std::int64_t messages, std::int64_t bytes) {
    messages_.fetch_add(messages, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  static std::int64_t rounds(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }
  // place + 1, + 2, + 4, … below n, up to the lowest bit of the place.
  static std::int64_t children(int n, int place) {
    std::int64_t count = 0;
    for (std::int64_t step = 1; place + step < n && (place == 0 || step < (place & -place)); step *= 2) ++count;
    return count;
  }

  std::atomic<std::int64_t> messages_ = 0, bytes_ = 0;
};

}  // namespace forge

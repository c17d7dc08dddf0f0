#pragma once

#include <atomic>
#include <cstdint>

namespace forge {

// Beats whenever a part of a long piece of work is done (bytes of a checkpoint written, a microbatch evaluated), for a
// watchdog that looks whether it goes on. Any thread may beat.
class Heartbeat {
 public:
  void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> beats_{0};
};

}  // namespace forge

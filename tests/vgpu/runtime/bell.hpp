#pragma once

#include <atomic>
#include <cstdint>

namespace vgpu {

// A counter in memory that other processes may map, and whoever sleeps until it moves. Executors sleep on one; whoever
// has news for them rings.
struct Bell {
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> sleepers{0};

  std::uint32_t heard() const { return rings.load(std::memory_order_acquire); }
  void ring();
  // Until somebody has rung since `heard`, or for so long at most.
  void sleep(std::uint32_t heard, double seconds);
};

}  // namespace vgpu

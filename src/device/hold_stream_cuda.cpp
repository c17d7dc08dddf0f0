#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/to_size.hpp"
#include "device/hold_stream.hpp"
#include "device/launch.hpp"

namespace forge {

namespace {

constexpr int hold_threads = 512;

// Nanoseconds of a clock that all multiprocessors share.
__device__ inline std::uint64_t nanoseconds() {
#if defined(FORGE_VGPU)
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#else
  std::uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
#endif
}

// Whether this thread waits: all do, and hold their multiprocessors; blocks of the emulated GPU may follow each other,
// and there one thread does.
__device__ inline bool waits() {
#if defined(FORGE_VGPU)
  return blockIdx.x == 0 && threadIdx.x == 0;
#else
  return true;
#endif
}

// Counts are of 16 bytes. Bytes move at an even pace: each part begins when its time has come.
__global__ void hold_kernel(uint4* to, const uint4* from, std::int64_t piece, std::int64_t count,
                            std::uint64_t duration) {
  constexpr std::int64_t parts = 64;
  const std::int64_t workers = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t worker = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t start = nanoseconds();
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t i = part * count / parts + worker; i < (part + 1) * count / parts; i += workers)
      to[i % piece] = from[i % piece];
    const std::uint64_t end = duration * static_cast<std::uint64_t>(part + 1) / parts;
    while (waits() && nanoseconds() - start < end) {
    }
  }
}

}  // namespace

void hold_stream(Stream& stream, const Hold& hold) {
  const auto duration = static_cast<std::uint64_t>(1e9 * std::max(hold.seconds, 0.0));
  constexpr std::size_t width = sizeof(uint4);
  launch(stream, "hold_stream", &hold_kernel, {hold.blocks, hold_threads}, reinterpret_cast<uint4*>(hold.to),
         reinterpret_cast<const uint4*>(hold.from), static_cast<std::int64_t>(hold.piece / width),
         static_cast<std::int64_t>((hold.bytes + width - 1) / width), duration);
}

}  // namespace forge

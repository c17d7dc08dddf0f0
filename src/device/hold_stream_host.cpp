#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/hold_stream.hpp"

namespace forge {

void hold_stream(Stream& stream, const Hold& hold) {
  stream.submit([hold] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(hold.seconds);
    for (std::size_t left = hold.bytes; left > 0;) {
      const std::size_t now = std::min(left, hold.piece);
      std::memcpy(hold.to, hold.from, now);
      left -= now;
    }
    std::this_thread::sleep_until(end);
  });
}

}  // namespace forge

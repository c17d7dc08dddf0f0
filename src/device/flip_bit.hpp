#pragma once

#include <cstddef>

#include "device/device_memory.hpp"
#include "device/stream.hpp"

namespace forge {

// A fault on purpose: changes the lowest bit of a byte of device memory. Waits for the stream.
inline void flip_bit(Stream& stream, std::byte* at) {
  std::byte changed{};
  copy_to_host(stream, &changed, at, 1);
  stream.synchronize();
  changed ^= std::byte{1};
  copy_to_device(stream, at, &changed, 1);
  stream.synchronize();
}

// Changes a number of so many bytes: a bit of its mantissa that no later rounding takes back.
inline void flip_bit_of(Stream& stream, std::byte* number, std::size_t bytes) {
  flip_bit(stream, number + bytes - (bytes < 2 ? bytes : 2));
}

}  // namespace forge

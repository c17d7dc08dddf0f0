#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/normal.hpp"
#include "core/to_size.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "device/host_loop.hpp"

namespace forge {

// values ← normal numbers of deviation `scale`: about a million drawn ones, again and again. For measurements: zeros
// would flatter a processor, whose clock falls with the bits that toggle. Returns when they are there.
template <class T, int N>
void fill_random(Stream& stream, const View<T, N>& values, std::uint64_t key, double scale = 1) {
  constexpr std::size_t most_drawn = 1048573;  // a prime number, so that no row is like the one above it
  const auto all = to_size(values.size()), drawn = std::min(all, most_drawn);
  std::vector<T> block(drawn);
  T* const to = block.data();
  device_detail::run_for(0, static_cast<std::int64_t>(drawn), [=](std::int64_t i) {
    to[i] = static_cast<T>(static_cast<float>(scale * normal(key, static_cast<std::uint64_t>(i))));
  });
  copy_to_device(stream, values.data, block.data(), drawn * sizeof(T));
  for (std::size_t at = drawn; at < all; at += drawn)
    copy_on_device(stream, values.data + at, values.data, std::min(drawn, all - at) * sizeof(T));
  stream.synchronize();
}

}  // namespace forge

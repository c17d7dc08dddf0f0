#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "core/to_size.hpp"
#include "device/device_memory.hpp"
#include "device/pinned.hpp"

namespace forge {

// How many rows experts get, as the host has read it for a pass, kept until the backward pass: by the place on the
// device where the same assignments' order is kept as long.
class HostCounts {
 public:
  // Waits for the stream.
  template <int N>
  void read(Stream& stream, const void* order, View<const std::int64_t, N> counts) {
    PinnedVector<std::int64_t>& values = kept_[order];
    values.resize(to_size(counts.size()));
    copy_to_host(stream, values.data(), counts.data, values.size() * sizeof(std::int64_t));
    stream.synchronize();
  }
  std::span<const std::int64_t> of(const void* order) const { return kept_.at(order); }

 private:
  std::map<const void*, PinnedVector<std::int64_t>> kept_;
};

}  // namespace forge

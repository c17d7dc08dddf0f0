#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "comm/tracks.hpp"
#include "core/to_size.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "device/pinned.hpp"

namespace forge {

// How many rows experts get, as the host has read it for a pass, kept until the backward pass: by the place on the
// device where the same assignments' order is kept as long.
class HostCounts {
 public:
  // Waits until the stream has passed the copy; of a track (comm/tracks.hpp; null: none) behind the other one's turn.
  template <int N>
  void read(Stream& stream, const void* order, View<const std::int64_t, N> counts, Tracks* tracks) {
    ++reads_;
    auto& [values, copied] = kept_[order];
    values.resize(to_size(counts.size()));
    copy_to_host(stream, values.data(), counts.data, values.size() * sizeof(std::int64_t));
    if (!tracks) return stream.synchronize();
    copied.record(stream);
    tracks->turn();
    copied.synchronize();
  }
  // Waits of the host so far.
  std::int64_t reads() const { return reads_; }
  std::span<const std::int64_t> of(const void* order) const { return kept_.at(order).values; }

 private:
  struct Kept {
    PinnedVector<std::int64_t> values;
    Event copied;
  };
  std::map<const void*, Kept> kept_;
  std::int64_t reads_ = 0;
};

}  // namespace forge

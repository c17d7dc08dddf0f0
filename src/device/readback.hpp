#pragma once

#include <cstddef>
#include <span>

#include "core/error.hpp"
#include "core/to_size.hpp"
#include "core/view.hpp"
#include "device/device_memory.hpp"
#include "device/pinned.hpp"

namespace forge {

// Small results of a device on their way to the host: all of a step's are asked for, then the host waits once. Between
// two waits the device would have nothing to do.
class Readback {
 public:
  // Bytes of host memory that copy() takes for a view.
  template <class V, int N>
  static std::size_t bytes_of(const View<V, N>& values) {
    return values.empty() ? 0 : (to_size(values.size()) * sizeof(V) + alignment - 1) / alignment * alignment;
  }

  // `bytes`: of all views that are copied between one begin() and the next.
  explicit Readback(std::size_t bytes) : memory_(bytes) {}

  // Forgets the values copied so far.
  void begin() { used_ = 0; }
  // The values' place on the host: they are there once the stream has been waited for, until the next begin(). Empty
  // for an empty view.
  template <class V, int N>
  std::span<const V> copy(Stream& stream, const View<V, N>& values) {
    if (values.empty()) return {};
    std::byte* const to = memory_.data() + used_;
    used_ += bytes_of(values);
    require(used_ <= memory_.size(), "more is read back than there is room for");
    copy_to_host(stream, to, values.data, to_size(values.size()) * sizeof(V));
    return {static_cast<const V*>(static_cast<const void*>(to)), to_size(values.size())};
  }

 private:
  static constexpr std::size_t alignment = 16;
  PinnedVector<std::byte> memory_;
  std::size_t used_ = 0;
};

}  // namespace forge

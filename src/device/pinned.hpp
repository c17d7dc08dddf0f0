#pragma once

#include <cstddef>
#include <vector>

namespace forge {

// Host memory that copies to and from a device pass by themselves: page-locked in the CUDA build, where the driver
// would let the host wait for copies of other memory. On the CPU by operator new. Throws std::bad_alloc.
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* memory, std::size_t bytes) noexcept;

// For containers of values that are copied step by step.
template <class T>
struct PinnedAllocator {
  using value_type = T;

  PinnedAllocator() = default;
  template <class U>
  PinnedAllocator(const PinnedAllocator<U>& /*other*/) {}

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_pinned(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { free_pinned(memory, count * sizeof(T)); }
  template <class U>
  bool operator==(const PinnedAllocator<U>& /*other*/) const {
    return true;
  }
};

template <class T>
using PinnedVector = std::vector<T, PinnedAllocator<T>>;

}  // namespace forge

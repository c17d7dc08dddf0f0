#include <cstddef>
#include <cstdint>

#include "checks.hpp"

// Atomic operations of the host's language in files with kernels, which -fsanitize=thread makes calls: checked, then
// done, all of them sequentially consistent. Kernels have CUDA's (vgpu_atomic).

namespace {

template <class T>
T* checked(T* p, vgpu::Access kind) {
  vgpu::check_access(reinterpret_cast<std::uintptr_t>(p), sizeof(T), kind);
  return p;
}

}  // namespace

extern "C" {

#define VGPU_FETCH(T, bits, name)                                                        \
  T __tsan_atomic##bits##_fetch_##name(T* p, T x, int) {                                 \
    return __atomic_fetch_##name(checked(p, vgpu::Access::atomic), x, __ATOMIC_SEQ_CST); \
  }
#define VGPU_COMPARE(T, bits, strength, weak)                                                                 \
  bool __tsan_atomic##bits##_compare_exchange_##strength(T* p, T* expected, T x, int, int) {                  \
    return __atomic_compare_exchange_n(checked(p, vgpu::Access::atomic), expected, x, weak, __ATOMIC_SEQ_CST, \
                                       __ATOMIC_SEQ_CST);                                                     \
  }
#define VGPU_ATOMICS(T, bits)                                                          \
  T __tsan_atomic##bits##_load(T* p, int) {                                            \
    return __atomic_load_n(checked(p, vgpu::Access::atomic_load), __ATOMIC_SEQ_CST);   \
  }                                                                                    \
  void __tsan_atomic##bits##_store(T* p, T x, int) {                                   \
    __atomic_store_n(checked(p, vgpu::Access::atomic), x, __ATOMIC_SEQ_CST);           \
  }                                                                                    \
  T __tsan_atomic##bits##_exchange(T* p, T x, int) {                                   \
    return __atomic_exchange_n(checked(p, vgpu::Access::atomic), x, __ATOMIC_SEQ_CST); \
  }                                                                                    \
  VGPU_FETCH(T, bits, add)                                                             \
  VGPU_FETCH(T, bits, sub)                                                             \
  VGPU_FETCH(T, bits, and)                                                             \
  VGPU_FETCH(T, bits, or)                                                              \
  VGPU_FETCH(T, bits, xor)                                                             \
  VGPU_COMPARE(T, bits, strong, false)                                                 \
  VGPU_COMPARE(T, bits, weak, true)
VGPU_ATOMICS(std::uint8_t, 8)
VGPU_ATOMICS(std::uint16_t, 16)
VGPU_ATOMICS(std::uint32_t, 32)
VGPU_ATOMICS(std::uint64_t, 64)
#undef VGPU_ATOMICS
#undef VGPU_COMPARE
#undef VGPU_FETCH

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

}  // extern "C"

#pragma once

// What a kernel uses, for g++: the words of CUDA's language, a thread's indices, barriers, operations of a warp,
// atomics. Each thread of a block is a fiber of the executor (runtime/block.hpp); an operation that needs other threads
// switches to them. The runtime is a shared library with this C interface.

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// A part of the emulation itself: what it touches is no access of a kernel.
#define VGPU_UNCHECKED __attribute__((no_sanitize_address, no_sanitize_thread))

struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

// Fibers stay on their thread, so a variable of the thread is enough; the runtime sets it at each switch. For a fiber it
// never changes.
#if defined(VGPU_RUNTIME)
#define VGPU_CONST
#else
#define VGPU_CONST const
#endif
#define VGPU_THREAD extern thread_local constinit __attribute__((tls_model("initial-exec"))) VGPU_CONST
VGPU_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;
#undef VGPU_THREAD
#undef VGPU_CONST
inline constexpr int warpSize = 32;

extern "C" {

// ---- the runtime
// All threads of the block meet; the place says which barrier it is.
void vgpu_barrier(const char* file, int line);
// mbarriers in shared memory, by their address.
void vgpu_mbarrier_init(const void* barrier, unsigned count);
void vgpu_mbarrier_arrive(const void* barrier);
void vgpu_mbarrier_wait(const void* barrier, unsigned parity, const char* file, int line);
// An array of the block; every `site` has one. dynamic: what the launch asked for.
void* vgpu_shared(const void* site, std::size_t bytes, std::size_t alignment);
void* vgpu_dynamic_shared();
// Whether the address is in the block's shared memory, or in device memory.
bool vgpu_is_shared(const void* p);
// Checks an atomic access; the memory is then read and written by functions that no check watches.
void vgpu_atomic(const void* p, std::size_t bytes);

// An operation of the lanes of `mask`: each shows `in`, the last to come computes for all, each gets its `out`.
inline constexpr int vgpu_warp_words = 16;
struct VgpuLanes {
  unsigned mask;
  std::uint32_t in[32][vgpu_warp_words], out[32][vgpu_warp_words];
};
struct VgpuWarpOperation {
  const char* name;
  void (*compute)(VgpuLanes*);
  int in, out;          // words of a lane
  bool orders = false;  // what lanes wrote before is seen by the others behind it
};
void vgpu_warp(const VgpuWarpOperation* operation, unsigned mask, const std::uint32_t* in, std::uint32_t* out,
               const char* file, int line);

// In an operation's compute: whose accesses the next ones are.
void vgpu_lane(int lane);

// Ends the process with what a kernel did wrong.
[[noreturn]] void vgpu_fail(const char* what);

// Copies to shared memory that land at the thread's wait for their group (all but the newest `pending` ones).
void vgpu_copy_async(void* to, const void* from, std::size_t bytes, std::size_t read);
void vgpu_copy_async_commit();
void vgpu_copy_async_wait(int pending);
}

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  vgpu_barrier(file, line);
}

namespace vgpu {

template <class T>
VGPU_UNCHECKED inline void put(std::uint32_t* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  to[(sizeof(T) - 1) / 4] = 0;
  std::memcpy(to, &value, sizeof(T));
}
template <class T>
VGPU_UNCHECKED inline T get(const std::uint32_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

VGPU_UNCHECKED inline float get_float(std::uint32_t bits) {
  return get<float>(&bits);
}

// Lane l gets the words of lane from(l), or keeps its own where that is outside of its segment of `width` lanes.
enum class Shuffle { direct, up, down, exclusive };
template <Shuffle kind, int words>
VGPU_UNCHECKED inline void shuffle(VgpuLanes* w) {
  for (int l = 0; l < 32; ++l) {
    if (!(w->mask >> l & 1u)) continue;
    const int operand = static_cast<int>(w->in[l][words]), width = static_cast<int>(w->in[l][words + 1]);
    const int first = l & ~(width - 1), last = first + width - 1;
    int from = l;
    if (kind == Shuffle::direct) from = first + (operand & (width - 1));
    if (kind == Shuffle::up && l - operand >= first) from = l - operand;
    if (kind == Shuffle::down && l + operand <= last) from = l + operand;
    if (kind == Shuffle::exclusive && (l ^ operand) <= last) from = l ^ operand;
    // A lane that takes no part shows nothing that has a meaning.
    const bool shown = w->mask >> from & 1u;
    for (int word = 0; word < words; ++word) w->out[l][word] = shown ? w->in[from][word] : 0xffffffffu;
  }
}

template <Shuffle kind, class T>
VGPU_UNCHECKED inline T shuffled(const char* name, unsigned mask, T value, int operand, int width, const char* file,
                                 int line) {
  constexpr int words = static_cast<int>((sizeof(T) + 3) / 4);
  std::uint32_t in[words + 2], out[words];
  put(in, value);
  in[words] = static_cast<std::uint32_t>(operand);
  in[words + 1] = static_cast<std::uint32_t>(width);
  const VgpuWarpOperation operation{name, shuffle<kind, words>, words + 2, words};
  vgpu_warp(&operation, mask, in, out, file, line);
  return get<T>(out);
}

// Each lane gets the mask of the lanes whose predicate holds.
VGPU_UNCHECKED inline void ballot(VgpuLanes* w) {
  std::uint32_t votes = 0;
  for (int l = 0; l < 32; ++l)
    if ((w->mask >> l & 1u) && w->in[l][0]) votes |= 1u << l;
  for (int l = 0; l < 32; ++l) w->out[l][0] = votes;
}

}  // namespace vgpu

#define VGPU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, VGPU_PLACE) {
  return vgpu::shuffled<vgpu::Shuffle::direct>("__shfl_sync", mask, value, lane, width, file, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, VGPU_PLACE) {
  return vgpu::shuffled<vgpu::Shuffle::up>("__shfl_up_sync", mask, value, static_cast<int>(delta), width, file, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, VGPU_PLACE) {
  return vgpu::shuffled<vgpu::Shuffle::down>("__shfl_down_sync", mask, value, static_cast<int>(delta), width, file,
                                             line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, VGPU_PLACE) {
  return vgpu::shuffled<vgpu::Shuffle::exclusive>("__shfl_xor_sync", mask, value, lanes, width, file, line);
}
VGPU_UNCHECKED inline unsigned __ballot_sync(unsigned mask, int predicate, VGPU_PLACE) {
  const VgpuWarpOperation operation{"__ballot_sync", vgpu::ballot, 1, 1};
  const std::uint32_t in = predicate != 0;
  std::uint32_t out;
  vgpu_warp(&operation, mask, &in, &out, file, line);
  return out;
}
inline int __any_sync(unsigned mask, int predicate, VGPU_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, VGPU_PLACE) {
  return __ballot_sync(mask, predicate == 0, file, line) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, VGPU_PLACE) {
  const VgpuWarpOperation operation{"__syncwarp", [](VgpuLanes*) {}, 0, 0, true};
  vgpu_warp(&operation, mask, nullptr, nullptr, file, line);
}
#undef VGPU_PLACE

// The lowest bit that is set, counted from 1; 0 where none is.
inline int __ffs(int x) {
  return __builtin_ffs(x);
}

// ---- atomics: a device has one executor, so that reading and writing are one act.
namespace vgpu {

template <class T, class F>
VGPU_UNCHECKED inline T exchange(T* p, F replacement) {
  vgpu_atomic(p, sizeof(T));
  const T old = *const_cast<volatile T*>(p);
  *const_cast<volatile T*>(p) = replacement(old);
  return old;
}

}  // namespace vgpu

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
  return vgpu::exchange(p, [x](T old) { return static_cast<T>(old + x); });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> x) {
  return vgpu::exchange(p, [x](T old) { return x < old ? x : old; });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> x) {
  return vgpu::exchange(p, [x](T old) { return x > old ? x : old; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> x) {
  return vgpu::exchange(p, [x](T) { return x; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  return vgpu::exchange(p, [=](T old) { return old == expected ? x : old; });
}

// Other blocks run before or after this one, never beside it.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// ---- arithmetic of CUDA's global namespace that C++ has elsewhere
#define VGPU_MIN_MAX(T)    \
  inline T min(T a, T b) { \
    return b < a ? b : a;  \
  }                        \
  inline T max(T a, T b) { \
    return a < b ? b : a;  \
  }
VGPU_MIN_MAX(int)
VGPU_MIN_MAX(unsigned)
VGPU_MIN_MAX(long)
VGPU_MIN_MAX(unsigned long)
VGPU_MIN_MAX(long long)
VGPU_MIN_MAX(unsigned long long)
#undef VGPU_MIN_MAX
inline float min(float a, float b) {
  return fminf(a, b);
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline double min(double a, double b) {
  return fmin(a, b);
}
inline double max(double a, double b) {
  return fmax(a, b);
}
inline float rsqrtf(float x) {
  return 1 / sqrtf(x);
}
inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
inline float __expf(float x) {
  return expf(x);
}
inline float __logf(float x) {
  return logf(x);
}

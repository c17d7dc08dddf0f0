#pragma once

#include "device/launch.hpp"

// CUDA build, in files that nvcc compiles: shared memory of a team's workers (device/team_cuda.hpp), and their
// barriers. In host code of these files, where no kernel runs, these functions have no meaning.

namespace forge {
namespace device_detail {

FORGE_INLINE int thread_of_block() {
#if defined(__CUDA_ARCH__)
  return static_cast<int>(threadIdx.x);
#else
  return 0;
#endif
}

// An array of the block: one for each type and count.
template <class A, int count>
FORGE_INLINE A* shared_array() {
#if defined(__CUDA_ARCH__)
  FORGE_SHARED(A, memory, count);
  return memory;
#else
  return nullptr;
#endif
}

template <class A>
FORGE_INLINE A shuffle_xor([[maybe_unused]] unsigned lanes, A value, [[maybe_unused]] int offset) {
#if defined(__CUDA_ARCH__)
  return __shfl_xor_sync(lanes, value, offset);
#else
  return value;
#endif
}

FORGE_INLINE void block_barrier() {
#if defined(__CUDA_ARCH__)
  __syncthreads();
#endif
}

FORGE_INLINE void warp_barrier([[maybe_unused]] unsigned lanes) {
#if defined(__CUDA_ARCH__)
  __syncwarp(lanes);
#endif
}

// A barrier of a team of so many workers: the block, or such lanes of a warp.
FORGE_INLINE void team_barrier(int size, unsigned lanes) {
  if (size > 32)
    block_barrier();
  else
    warp_barrier(lanes);
}

}  // namespace device_detail

}  // namespace forge

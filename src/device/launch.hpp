#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "device/cuda_check.hpp"
#include "device/stream.hpp"

// CUDA build, in files that nvcc compiles: how kernels start, and where they get shared memory. Both go through one
// construct, because the emulated GPU (docs/developer.md) compiles the same kernels for the host.

namespace forge {

struct LaunchShape {
  std::int64_t blocks;
  int threads;  // of a block
  std::size_t dynamic_shared_bytes = 0;
};

// Starts kernel(arguments…) in the stream; `what` stands in error messages.
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const char* what, void (*kernel)(Parameters...), const LaunchShape& shape,
            Arguments... arguments) {
  if (shape.blocks > std::numeric_limits<std::int32_t>::max())
    throw Error(std::string(what) + ": " + std::to_string(shape.blocks) + " blocks are more than CUDA can launch");
  if (shape.dynamic_shared_bytes > 0)
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.dynamic_shared_bytes)),
               what);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.dynamic_shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native());
  cuda_check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

// Bytes of shared memory that a block may have on this thread's device, static and dynamic together.
inline std::size_t most_shared_bytes() {
  return static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

// FORGE_SHARED(type, name, count): `name` points to an array of the block, in a function of a kernel. A function
// template has one for each of its instances.
// dynamic_shared(): the bytes that the launch asked for, 16-byte aligned.
#if defined(FORGE_VGPU)
#define FORGE_SHARED(type, name, count) \
  static char name##_site;              \
  type* const name = static_cast<type*>(vgpu_shared(&name##_site, sizeof(type) * (count), alignof(type)))

inline unsigned char* dynamic_shared() {
  return static_cast<unsigned char*>(vgpu_dynamic_shared());
}
#else
#define FORGE_SHARED(type, name, count) __shared__ type name[count]

__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char forge_dynamic_shared[];
  return forge_dynamic_shared;
}
#endif

}  // namespace forge

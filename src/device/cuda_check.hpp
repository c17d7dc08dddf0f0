#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <string>

#include "core/error.hpp"

namespace forge {

// Throws when a CUDA runtime call failed; the message carries CUDA's own text and the place of the call.
inline void cuda_check(cudaError_t status, const char* call,
                       std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) throw LibraryFailed(std::string(call) + ": " + cudaGetErrorString(status), where);
}

// An attribute of this thread's device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace forge

#pragma once

#include <memory>
#include <string>

#include "cuda_runtime.h"
#include "machine.hpp"

namespace vgpu {

// Remembers the error for cudaGetLastError.
cudaError_t returned(cudaError_t error);
// The same for an error whose number says too little: the text goes to stderr.
cudaError_t refused(cudaError_t error, const std::string& why);

// The stream behind a handle; null: none, or a call that isn't allowed here, with the error.
struct Found {
  Stream* stream = nullptr;
  cudaError_t error = cudaSuccess;
};
Found find_stream(cudaStream_t handle, const char* call);

// Puts work into the stream, or into the graph that it records.
cudaError_t give(Stream& stream, std::unique_ptr<Work> work);

// Whether [p, p + bytes) is live memory of the device.
bool on_device(Device& device, const void* p, std::size_t bytes);

inline void count(Device& device, const char* what, std::size_t n = 1) {
  device.counters().add(what, static_cast<std::int64_t>(n));
}

}  // namespace vgpu

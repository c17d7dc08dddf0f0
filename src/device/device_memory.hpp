#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "device/stream.hpp"

namespace forge {

// Owns bytes on the device (CPU build: page-aligned, untouched until used). Empty after a move.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Ordered in the stream. The host memory must stay as it is until the stream has passed the copy.
void copy_to_device(Stream& stream, void* device, const void* host, std::size_t bytes);
void copy_to_host(Stream& stream, void* host, const void* device, std::size_t bytes);
void copy_on_device(Stream& stream, void* to, const void* from, std::size_t bytes);
void fill_zero(Stream& stream, void* device, std::size_t bytes);

// This rank's device, for the job header.
struct DeviceInfo {
  const char* kind;          // "cpu", "cuda", or "vgpu": the emulated GPU, where ranks may be threads
  char name[256];            // of the processor or the GPU
  char features[128];        // vector path in use, or "sm_90"
  int capability;            // of compute, 90 of sm_90; 0: a processor
  std::size_t memory_bytes;  // total
  int cores;                 // hardware threads of the node, or multiprocessors
};
DeviceInfo device_info();
// Resident bytes of this process on the host, now and at their most; 0 where the system doesn't tell.
struct HostMemory {
  std::size_t resident = 0, peak = 0;
};
HostMemory host_memory();

// Chooses the GPU of a rank by its node-local number; does nothing on the CPU.
void select_device(int local_rank);
// Bytes of this rank's GPU that nobody has taken; none on the CPU, whose memory the system gives page by page.
std::optional<std::size_t> free_device_memory();
// The PCI bus id of the chosen GPU, unlike the ids of the node's other GPUs; empty on the CPU.
std::string device_id();
// "CUDA 12.4, driver for 12.6": the library and driver of this process; empty on the CPU.
std::string device_library();

}  // namespace forge

#include <cstdio>
#include <utility>

#include "device/cuda_check.hpp"
#include "device/device_memory.hpp"
#include "device/pinned.hpp"

namespace forge {

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  cuda_check(cudaMalloc(&p, bytes), "cudaMalloc");
  data_ = static_cast<std::byte*>(p);
}

Buffer::~Buffer() {
  if (data_) cudaFree(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace {

void copy(Stream& stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes != 0)
    cuda_check(cudaMemcpyAsync(to, from, bytes, kind, static_cast<cudaStream_t>(stream.native())), "cudaMemcpyAsync");
}

}  // namespace

void copy_to_device(Stream& stream, void* device, const void* host, std::size_t bytes) {
  copy(stream, device, host, bytes, cudaMemcpyHostToDevice);
}

void copy_to_host(Stream& stream, void* host, const void* device, std::size_t bytes) {
  copy(stream, host, device, bytes, cudaMemcpyDeviceToHost);
}

void copy_on_device(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (to != from) copy(stream, to, from, bytes, cudaMemcpyDeviceToDevice);
}

void fill_zero(Stream& stream, void* device, std::size_t bytes) {
  if (bytes != 0)
    cuda_check(cudaMemsetAsync(device, 0, bytes, static_cast<cudaStream_t>(stream.native())), "cudaMemsetAsync");
}

void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  cuda_check(status, "cudaMallocHost");
  return memory;
}

void free_pinned(void* memory, std::size_t /*bytes*/) noexcept {
  cudaFreeHost(memory);
}

DeviceInfo device_info() {
  int device = 0;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  DeviceInfo info{};
#if defined(FORGE_VGPU)
  info.kind = "vgpu";
#else
  info.kind = "cuda";
#endif
  std::snprintf(info.name, sizeof info.name, "%s", properties.name);
  std::snprintf(info.features, sizeof info.features, "sm_%d%d", properties.major, properties.minor);
  info.capability = 10 * properties.major + properties.minor;
  info.memory_bytes = properties.totalGlobalMem;
  info.cores = properties.multiProcessorCount;
  return info;
}

void select_device(int local_rank) {
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  cuda_check(cudaSetDevice(local_rank % count), "cudaSetDevice");
}

std::optional<std::size_t> free_device_memory() {
  std::size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::string device_id() {
  int device = 0;
  char id[32] = "";
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaDeviceGetPCIBusId(id, sizeof id, device), "cudaDeviceGetPCIBusId");
  return id;
}

// A machine without a GPU may have no driver.
std::string device_library() {
  int runtime = 0, driver = 0;
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  return "CUDA " + text(runtime) + (known ? ", driver for " + text(driver) : ", no driver");
}

}  // namespace forge

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api.hpp"
#include "fail.hpp"
#include "settings.hpp"
#include "works.hpp"

// CUDA's runtime: errors, devices, memory.

namespace vgpu {

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText unknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  for (const ErrorText& text : error_texts)
    if (text.error == error) return text;
  return unknown;
}

}  // namespace

cudaError_t returned(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t refused(cudaError_t error, const std::string& why) {
  std::fprintf(stderr, "vgpu: %s\n", why.c_str());
  return returned(error);
}

bool on_device(Device& device, const void* p, std::size_t bytes) {
  if (device_of(p) != device.number()) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const Live live = device.memory().live(address);
  return live.bytes > 0 && address - live.begin + bytes <= live.bytes;
}

}  // namespace vgpu

using vgpu::current_device;
using vgpu::Machine;
using vgpu::refused;
using vgpu::returned;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(vgpu::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return vgpu::last_error;
}
const char* cudaGetErrorString(cudaError_t error) {
  return vgpu::text_of(error).text;
}
const char* cudaGetErrorName(cudaError_t error) {
  return vgpu::text_of(error).name;
}

// ---- devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::get().devices();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Machine::get().devices())
    return refused(cudaErrorInvalidDevice, "cudaSetDevice(" + std::to_string(device) + "): this node has " +
                                               std::to_string(Machine::get().devices()) +
                                               " devices (FORGE_VGPU_DEVICES)");
  vgpu::set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = vgpu::current_device_number();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= Machine::get().devices()) return returned(cudaErrorInvalidDevice);
  const vgpu::Settings& s = vgpu::settings();
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU on the CPU");
  properties->totalGlobalMem = s.memory;
  properties->sharedMemPerBlock = vgpu::Settings::shared_default;
  properties->sharedMemPerBlockOptin = s.shared_limit();
  properties->major = s.arch / 10;
  properties->minor = s.arch % 10;
  properties->multiProcessorCount = vgpu::Settings::multiprocessors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->pciBusID = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= Machine::get().devices()) return returned(cudaErrorInvalidDevice);
  const vgpu::Settings& s = vgpu::settings();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = s.arch / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = s.arch % 10;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = vgpu::Settings::multiprocessors;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(s.shared_limit());
      return cudaSuccess;
  }
  return returned(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize() {
  vgpu::Device& device = current_device();
  vgpu::count(device, "host waits");
  device.wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device < 0 || device >= Machine::get().devices()) return returned(cudaErrorInvalidDevice);
  if (std::snprintf(id, static_cast<std::size_t>(length), "%08x:%02x:00.0", device / 256, device % 256) >= length)
    return returned(cudaErrorInvalidValue);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  vgpu::Device& device = current_device();
  *total = device.memory().capacity();
  *free = *total - device.memory().used();
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// ---- memory

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (vgpu::in_host_function()) return refused(cudaErrorNotPermitted, "cudaMalloc in a host function of a stream");
  vgpu::Device& device = current_device();
  *pointer = bytes == 0 ? nullptr : device.memory().allocate(bytes);
  vgpu::count(device, "allocated bytes", static_cast<std::int64_t>(bytes));
  if (bytes > 0 && *pointer == nullptr)
    return refused(cudaErrorMemoryAllocation, "cudaMalloc of " + std::to_string(bytes) + " bytes; " +
                                                  std::to_string(device.memory().capacity() - device.memory().used()) +
                                                  " of " + std::to_string(device.memory().capacity()) +
                                                  " are free (FORGE_VGPU_MEMORY_GIB)");
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const int number = vgpu::device_of(pointer);
  if (number < 0) return refused(cudaErrorInvalidValue, "cudaFree of what isn't device memory");
  vgpu::Device& device = Machine::get().device(number);
  device.wait_for_all();  // as CUDA's does
  if (!device.memory().release(pointer))
    return refused(cudaErrorInvalidValue, "cudaFree of an address that no allocation starts at");
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  *pointer = mmap(nullptr, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*pointer == MAP_FAILED) return returned(cudaErrorMemoryAllocation);
  Machine::get().add_pinned(*pointer, bytes == 0 ? 1 : bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const std::size_t bytes = Machine::get().remove_pinned(pointer);
  if (bytes == 0) return refused(cudaErrorInvalidValue, "cudaFreeHost of what cudaMallocHost has not given");
  current_device().wait_for_all();
  munmap(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  const auto [stream, error] = vgpu::find_stream(handle, "cudaMemcpyAsync");
  if (!stream) return error;
  if (bytes == 0) return cudaSuccess;
  vgpu::Device& device = stream->device;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (!from_device && !to_device)
    return refused(cudaErrorNotSupported, "cudaMemcpyAsync: the kind of the copy is not emulated");
  const auto wrong = [&](const char* which, const void* p, bool on_device) {
    const std::string size = std::to_string(bytes) + " bytes ";
    if (on_device && !vgpu::on_device(device, p, bytes))
      return "cudaMemcpyAsync of " + size + which + " what isn't live memory of device " +
             std::to_string(device.number());
    if (!on_device && vgpu::device_of(p) >= 0)
      return "cudaMemcpyAsync of " + size + which + " device memory; its kind says host memory";
    return std::string();
  };
  for (const std::string& what : {wrong("to", to, to_device), wrong("from", from, from_device)})
    if (!what.empty()) return refused(cudaErrorInvalidValue, what);
  const auto distance = static_cast<const char*>(to) - static_cast<const char*>(from);
  if (from_device && to_device && static_cast<std::size_t>(std::abs(distance)) < bytes)
    return refused(cudaErrorInvalidValue,
                   "cudaMemcpyAsync of " + std::to_string(bytes) + " bytes between areas that overlap");
  const bool pinned = from_device != to_device && Machine::get().pinned(to_device ? from : to);
  if (from_device && to_device) {
    vgpu::count(device, "copies on the device");
  } else {
    vgpu::count(device, to_device ? "copies to the device" : "copies to the host");
    vgpu::count(device, to_device ? "bytes to the device" : "bytes to the host", bytes);
    if (!pinned) vgpu::count(device, "pageable copies");
  }
  using vgpu::CopyKind;
  const auto copy_kind = !to_device ? CopyKind::to_host : from_device ? CopyKind::on_device : CopyKind::to_device;
  return vgpu::give(*stream, vgpu::copy_work(to, from, bytes, copy_kind, pinned));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t handle) {
  return cudaMemset2DAsync(to, bytes, value, bytes, 1, handle);
}

cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t handle) {
  const auto [stream, error] = vgpu::find_stream(handle, "cudaMemsetAsync");
  if (!stream) return error;
  if (width == 0 || height == 0) return cudaSuccess;
  if (pitch < width) return refused(cudaErrorInvalidPitchValue, "cudaMemset2DAsync: the pitch is below the width");
  if (!vgpu::on_device(stream->device, to, (height - 1) * pitch + width))
    return refused(cudaErrorInvalidValue,
                   "cudaMemsetAsync of what isn't live memory of device " + std::to_string(stream->device.number()));
  vgpu::count(stream->device, "fills");
  return vgpu::give(*stream, vgpu::set_work(to, value, width, height, pitch));
}

}  // extern "C"

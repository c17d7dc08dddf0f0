#include "api.hpp"
#include "fail.hpp"
#include "graph.hpp"
#include "settings.hpp"
#include "works.hpp"

// CUDA's runtime: streams, events, launches.

namespace vgpu {

namespace {

cudaStream_t handle_of(Stream* stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}
Event* event_of(cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return Machine::get().has(event) ? event : nullptr;
}

}  // namespace

Found find_stream(cudaStream_t handle, const char* call) {
  const std::string name = call;
  if (in_host_function())
    return {nullptr,
            refused(cudaErrorNotPermitted, name + " in a host function of a stream, which must not call CUDA")};
  if (handle == nullptr)
    return {nullptr,
            refused(cudaErrorNotSupported, name + " in the null stream, which is not emulated: forge has none")};
  Stream* stream = Machine::get().find(handle);
  if (!stream) return {nullptr, refused(cudaErrorInvalidResourceHandle, name + " in a stream that isn't there")};
  return {stream, cudaSuccess};
}

cudaError_t give(Stream& stream, std::unique_ptr<Work> work) {
  if (stream.capture) return returned(stream.capture->add(stream, std::move(work)));
  stream.device.give(stream, std::move(work));
  return cudaSuccess;
}

namespace {

// What a launch asks for, against what a device and CUDA allow.
std::string limits_broken_by(const cudaLaunchConfig_t& c, const void* function) {
  const dim3 &g = c.gridDim, &b = c.blockDim;
  const auto extents = [](const dim3& d) {
    return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
  };
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    return "a grid of " + extents(g) + " blocks; legal are 1 to 2147483647 x 65535 x 65535";
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 || std::uint64_t{b.x} * b.y * b.z > 1024)
    return "a block of " + extents(b) + " threads; legal are 1024 in all, 64 in z";
  const std::size_t allowed = Machine::get().dynamic_shared(function);
  if (c.dynamicSmemBytes > allowed)
    return std::to_string(c.dynamicSmemBytes) +
           " bytes of dynamic shared memory; without a larger "
           "cudaFuncAttributeMaxDynamicSharedMemorySize this kernel has " +
           std::to_string(allowed);
  return "";
}

}  // namespace

}  // namespace vgpu

using vgpu::find_stream;
using vgpu::Machine;
using vgpu::refused;
using vgpu::returned;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (flags != cudaStreamNonBlocking)
    return refused(cudaErrorNotSupported, "a stream that waits for the null stream is not emulated");
  *stream = vgpu::handle_of(vgpu::current_device().create_stream());
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto [stream, error] = find_stream(handle, "cudaStreamDestroy");
  if (!stream) return error;
  stream->device.destroy(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto [stream, error] = find_stream(handle, "cudaStreamSynchronize");
  if (!stream) return error;
  if (stream->capture) return returned(stream->capture->invalidate("cudaStreamSynchronize"));
  vgpu::count(stream->device, "host waits");
  stream->device.wait(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto [stream, error] = find_stream(handle, "cudaStreamQuery");
  if (!stream) return error;
  if (stream->capture) return returned(stream->capture->invalidate("cudaStreamQuery"));
  return stream->device.idle(*stream) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  const auto [stream, error] = find_stream(handle, "cudaStreamWaitEvent");
  if (!stream) return error;
  vgpu::Event* event = vgpu::event_of(event_handle);
  if (!event) return refused(cudaErrorInvalidResourceHandle, "cudaStreamWaitEvent for an event that isn't there");
  if (const auto capture = event->capture.lock()) return returned(capture->wait(stream->capture, *stream, *event));
  if (stream->capture) return returned(stream->capture->wait_outside(event->point != nullptr));
  if (!event->point) return cudaSuccess;
  return vgpu::give(*stream, vgpu::wait_work(event->point));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  const auto [stream, error] = find_stream(handle, "cudaLaunchHostFunc");
  if (!stream) return error;
  vgpu::count(stream->device, "host functions");
  return vgpu::give(*stream, vgpu::host_work([=] { function(data); }));
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = reinterpret_cast<cudaEvent_t>(Machine::get().create_event(flags));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Machine::get().destroy(reinterpret_cast<vgpu::Event*>(event)) ? cudaSuccess
                                                                       : returned(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const auto [stream, error] = find_stream(stream_handle, "cudaEventRecord");
  if (!stream) return error;
  vgpu::Event* event = vgpu::event_of(handle);
  if (!event) return refused(cudaErrorInvalidResourceHandle, "cudaEventRecord of an event that isn't there");
  if (stream->capture) return returned(stream->capture->record(stream->capture, *stream, *event));
  event->capture.reset();
  event->point = std::make_shared<vgpu::Point>(stream->device);
  stream->device.give(*stream, vgpu::record_work(event->point));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  vgpu::Event* event = vgpu::event_of(handle);
  if (!event) return returned(cudaErrorInvalidResourceHandle);
  if (event->capture.lock()) return refused(cudaErrorCapturedEvent, "cudaEventSynchronize of a captured event");
  if (const auto point = event->point) {
    vgpu::count(point->device, "host waits");
    point->device.wait_until([&] { return point->passed.load(); });
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  vgpu::Event* event = vgpu::event_of(handle);
  if (!event) return returned(cudaErrorInvalidResourceHandle);
  if (event->capture.lock()) return refused(cudaErrorCapturedEvent, "cudaEventQuery of a captured event");
  return !event->point || event->point->passed ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const vgpu::Event *a = vgpu::event_of(begin), *b = vgpu::event_of(end);
  if (!a || !b || !a->point || !b->point || ((a->flags | b->flags) & cudaEventDisableTiming))
    return refused(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime of events that keep no time");
  if (!a->point->passed || !b->point->passed) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(b->point->when - a->point->when).count();
  return cudaSuccess;
}

// ---- launches

cudaError_t vgpu_function_attribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0) return returned(cudaErrorInvalidValue);
  if (static_cast<std::size_t>(value) > vgpu::settings().shared_limit())
    return refused(cudaErrorInvalidValue, std::to_string(value) + " bytes of dynamic shared memory for " +
                                              vgpu::name_of_function(function) + "; sm_" +
                                              std::to_string(vgpu::settings().arch) + " has " +
                                              std::to_string(vgpu::settings().shared_limit()) + " a block");
  Machine::get().set_dynamic_shared(function, static_cast<std::size_t>(value));
  return cudaSuccess;
}

cudaError_t vgpu_launch(const cudaLaunchConfig_t* config, const VgpuKernel* kernel) {
  auto launch = std::make_shared<vgpu::Launch>();
  launch->grid.kernel = *kernel;
  const auto [stream, error] = find_stream(config->stream, "a launch");
  if (!stream) return error;
  launch->grid.name = vgpu::name_of_function(kernel->function);
  if (config->numAttrs > 0) return refused(cudaErrorNotSupported, "attributes of launches are not emulated");
  if (const std::string broken = vgpu::limits_broken_by(*config, kernel->function); !broken.empty())
    return refused(cudaErrorInvalidConfiguration, "launch of " + launch->grid.name + ": " + broken);
  if (stream->device.number() != vgpu::current_device_number())
    return refused(cudaErrorInvalidResourceHandle, "launch of " + launch->grid.name + " in a stream of device " +
                                                       std::to_string(stream->device.number()) +
                                                       ", while the thread's device is " +
                                                       std::to_string(vgpu::current_device_number()));
  launch->grid.blocks = config->gridDim;
  launch->grid.threads = config->blockDim;
  launch->grid.dynamic_shared = config->dynamicSmemBytes;
  stream->device.counters().add_launch(launch->grid.name);
  return vgpu::give(*stream, vgpu::kernel_work(std::move(launch)));
}

}  // extern "C"

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace vgpu {

// Runs the host functions of a device's streams, one after another, beside the device.
class HostThread {
 public:
  // Starts the thread, where there is none yet.
  void give(std::function<void()> function);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::function<void()>> queue_;
  bool started_ = false;
};

// Whether the calling thread is in a host function, which must not call CUDA.
bool in_host_function();

}  // namespace vgpu

#include "host_thread.hpp"

namespace vgpu {

namespace {

thread_local bool running_host_function = false;

}  // namespace

bool in_host_function() {
  return running_host_function;
}

void HostThread::give(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(function));
  // It ends with the process.
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
  given_.notify_one();
}

void HostThread::run() {
  running_host_function = true;
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [this] { return !queue_.empty(); });
    const std::function<void()> function = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace vgpu

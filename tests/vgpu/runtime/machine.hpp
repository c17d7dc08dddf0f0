#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "device.hpp"
#include "event.hpp"

namespace vgpu {

// The devices of this process, and CUDA's state of a process. A device is made when it is first used; nothing here
// is ever taken down, as the threads of devices run until the process ends.
class Machine {
 public:
  static Machine& get();

  int devices() const;
  Device& device(int number);
  void ring_all();

  // Handles that the program gives back.
  Event* create_event(unsigned flags);
  bool destroy(Event* event);
  bool has(const Event* event);
  // Whose stream it is; null: nobody's.
  Stream* find(void* stream);

  // Page-locked memory of the host.
  void add_pinned(void* p, std::size_t bytes);
  std::size_t remove_pinned(void* p);  // its bytes; 0: not ours
  bool pinned(const void* p);

  // The dynamic shared memory that a kernel may be launched with, on the calling thread's device.
  void set_dynamic_shared(const void* function, std::size_t bytes);
  std::size_t dynamic_shared(const void* function);

 private:
  static constexpr int most_devices = 1024;
  Machine();
  void write_report();

  std::mutex mutex_;
  std::array<std::atomic<Device*>, most_devices> devices_{};
  std::map<const Event*, std::unique_ptr<Event>> events_;
  std::map<const void*, std::size_t> pinned_;
  std::map<std::pair<int, const void*>, std::size_t> dynamic_shared_;
};

// Of the calling thread.
Device& current_device();
void set_current_device(int number);
int current_device_number();

}  // namespace vgpu

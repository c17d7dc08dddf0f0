#include "machine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "faults.hpp"
#include "settings.hpp"

namespace vgpu {

namespace {

thread_local int current = 0;

}  // namespace

Machine& Machine::get() {
  static Machine& machine = *new Machine;
  return machine;
}

Machine::Machine() {
  watch_faults();
  // What streams still have to do is lost with the process, as on a GPU.
  std::atexit([] {
    Machine& machine = get();
    for (const auto& device : machine.devices_)
      if (Device* d = device.load()) d->halt();
    if (!settings().report.empty()) machine.write_report();
  });
}

int Machine::devices() const {
  return settings().devices;
}

Device& Machine::device(int number) {
  std::atomic<Device*>& slot = devices_.at(static_cast<std::size_t>(number));
  if (Device* made = slot.load()) return *made;
  const std::lock_guard lock(mutex_);
  if (!slot.load()) slot = new Device(number);
  return *slot.load();
}

void Machine::ring_all() {
  for (int i = 0; i < devices(); ++i)
    if (Device* device = devices_[static_cast<std::size_t>(i)].load()) device->ring();
}

// One line a device, so that processes may share a file.
void Machine::write_report() {
  std::string text;
  for (const auto& slot : devices_)
    if (Device* device = slot.load()) {
      device->counters().add("allocations", device->memory().allocations());
      device->counters().add("most bytes in use", static_cast<std::int64_t>(device->memory().most_used()));
      text += device->counters().json(device->number()) + "\n";
    }
  const int file = open(settings().report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    std::perror(("vgpu: " + settings().report).c_str());
  if (file >= 0) close(file);
}

Event* Machine::create_event(unsigned flags) {
  auto event = std::make_unique<Event>(Event{flags});
  Event* handle = event.get();
  const std::lock_guard lock(mutex_);
  events_[handle] = std::move(event);
  return handle;
}

bool Machine::destroy(Event* event) {
  const std::lock_guard lock(mutex_);
  return events_.erase(event) > 0;
}

bool Machine::has(const Event* event) {
  const std::lock_guard lock(mutex_);
  return events_.contains(event);
}

Stream* Machine::find(void* stream) {
  for (int i = 0; i < devices(); ++i) {
    Device* device = devices_[static_cast<std::size_t>(i)].load();
    if (device && device->has(static_cast<Stream*>(stream))) return static_cast<Stream*>(stream);
  }
  return nullptr;
}

void Machine::add_pinned(void* p, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  pinned_[p] = bytes;
}

std::size_t Machine::remove_pinned(void* p) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(p);
  if (found == pinned_.end()) return 0;
  const std::size_t bytes = found->second;
  pinned_.erase(found);
  return bytes;
}

bool Machine::pinned(const void* p) {
  const std::lock_guard lock(mutex_);
  auto behind = pinned_.upper_bound(p);
  if (behind == pinned_.begin()) return false;
  --behind;
  return static_cast<const char*>(p) < static_cast<const char*>(behind->first) + behind->second;
}

void Machine::set_dynamic_shared(const void* function, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  dynamic_shared_[{current, function}] = bytes;
}

std::size_t Machine::dynamic_shared(const void* function) {
  const std::lock_guard lock(mutex_);
  const auto found = dynamic_shared_.find({current, function});
  return found == dynamic_shared_.end() ? Settings::shared_default : found->second;
}

Device& current_device() {
  return Machine::get().device(current);
}
void set_current_device(int number) {
  current = number;
}
int current_device_number() {
  return current;
}

}  // namespace vgpu

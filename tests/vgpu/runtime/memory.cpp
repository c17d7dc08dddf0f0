#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fail.hpp"
#include "random.hpp"
#include "settings.hpp"

namespace vgpu {

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t header = std::size_t{1} << 20;  // the bell, and no address near 0

std::size_t rounded(std::size_t bytes) {
  return (bytes + page - 1) / page * page;
}

void* map(void* at, std::size_t bytes, int protection, int flags, int file) {
  void* p = mmap(at, bytes, protection, flags | MAP_NORESERVE, file, 0);
  if (p == MAP_FAILED) fail(std::string("no address space for device memory: ") + std::strerror(errno));
  return p;
}

Window reserve() {
  Window w;
  // Twice the memory, for the gaps between allocations.
  w.stride = 2 * settings().memory + header;
  w.bytes = w.stride * static_cast<std::size_t>(settings().devices);
  w.begin = reinterpret_cast<std::uintptr_t>(map(nullptr, w.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
  return w;
}

}  // namespace

constinit std::atomic<std::uintptr_t> window_begin = 0;
constinit std::atomic<std::size_t> window_bytes = 0;

const Window& window() {
  static const Window w = [] {
    const Window made = reserve();
    window_begin = made.begin;
    window_bytes = made.bytes;
    return made;
  }();
  return w;
}

int device_of(const void* address) {
  if (!in_window(reinterpret_cast<std::uintptr_t>(address))) return -1;
  return static_cast<int>((reinterpret_cast<std::uintptr_t>(address) - window().begin) / window().stride);
}

unsigned char poison() {
  // NaN and −1; NaN of bf16 and large indices; large finite numbers.
  constexpr unsigned char patterns[] = {0xff, 0xff, 0xfb, 0x7e};
  static const unsigned char chosen = patterns[Random(settings().seed).below(sizeof patterns)];
  return chosen;
}

Memory::Memory(int device, std::size_t capacity)
    : device_(device),
      file_(memfd_create("forge-vgpu-device", MFD_CLOEXEC)),
      capacity_(capacity),
      file_bytes_(window().stride) {
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(file_bytes_)) != 0)
    fail(std::string("no memory for a device: ") + std::strerror(errno));
  begin_ = window().begin + static_cast<std::size_t>(device) * window().stride;
  map(reinterpret_cast<void*>(begin_), file_bytes_, PROT_NONE, MAP_SHARED | MAP_FIXED, file_);
  inner_ = static_cast<char*>(map(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_));
  new (bell_in(inner_)) Bell;
  new (board_in(inner_)) Board;
}

void* Memory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (used_ + rounded(bytes) > capacity_) return nullptr;
  // The first gap that leaves a page on both sides.
  std::uintptr_t at = begin_ + header;
  for (const auto& [begin, size] : live_) {
    if (begin - at >= rounded(bytes) + page) break;
    at = begin + rounded(size) + page;
  }
  if (at + rounded(bytes) + page > begin_ + file_bytes_) return nullptr;
  live_[at] = bytes;
  used_ += rounded(bytes);
  most_used_ = std::max(most_used_, used_);
  ++count_;
  std::memset(inner_ + (at - begin_), poison(), bytes);
  return reinterpret_cast<void*>(at);
}

bool Memory::release(void* p) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(reinterpret_cast<std::uintptr_t>(p));
  if (found == live_.end()) return false;
  const std::size_t bytes = rounded(found->second);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(found->first - begin_),
            static_cast<off_t>(bytes));
  used_ -= bytes;
  live_.erase(found);
  return true;
}

Live Memory::live(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  auto behind = live_.upper_bound(address);
  if (behind == live_.begin()) return {};
  --behind;
  return address - behind->first < behind->second ? Live{behind->first, behind->second} : Live{};
}

std::string Memory::neighbours(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  auto behind = live_.upper_bound(address);
  if (behind == live_.begin()) return "before every allocation of the device";
  --behind;
  return std::to_string(address - behind->first - behind->second) + " bytes behind an allocation of " +
         std::to_string(behind->second) + " bytes";
}

std::size_t Memory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void Memory::open() {
  if (open_) return;
  mprotect(reinterpret_cast<void*>(begin_), file_bytes_, PROT_READ | PROT_WRITE);
  open_ = true;
}

void Memory::close() {
  if (!open_) return;
  mprotect(reinterpret_cast<void*>(begin_), file_bytes_, PROT_NONE);
  open_ = false;
}

}  // namespace vgpu

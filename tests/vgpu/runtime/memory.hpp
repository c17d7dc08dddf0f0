#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "bell.hpp"
#include "board.hpp"

namespace vgpu {

// All addresses of device memory of this process: hosts that touch one are wrong, whatever stands there. Devices follow
// each other, `stride` apart. No bytes before the first device is used.
struct Window {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0, stride = 0;
};
const Window& window();
// Whether an address is in it, for who can't wait: in none before the first device, when there is nothing to touch.
extern constinit std::atomic<std::uintptr_t> window_begin;
extern constinit std::atomic<std::size_t> window_bytes;
inline bool in_window(std::uintptr_t address) {
  const std::size_t bytes = window_bytes.load(std::memory_order_acquire);
  return address - window_begin.load(std::memory_order_relaxed) < bytes;
}
// The device that an address belongs to; -1: none.
int device_of(const void* address);

// [begin, begin + bytes) of live memory.
struct Live {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

// The memory of one device: an anonymous file that is mapped twice. The addresses that programs get are closed but
// while a kernel runs, so that no library call of a host gets through either; the runtime has a view of its own. Other
// processes of the node map the file, as GPUs map each other's memory.
class Memory {
 public:
  Memory(int device, std::size_t capacity);

  int device() const { return device_; }
  // Poisoned; null where the device is full.
  void* allocate(std::size_t bytes);
  // False: no live allocation starts there.
  bool release(void* p);
  // The allocation that an address is in; no bytes: none.
  Live live(std::uintptr_t address) const;
  // The neighbours of an address that is in no allocation, for messages.
  std::string neighbours(std::uintptr_t address) const;
  std::size_t used() const;
  std::size_t capacity() const { return capacity_; }
  std::size_t most_used() const { return most_used_; }
  std::int64_t allocations() const { return count_; }

  // The runtime's view of a device address.
  char* inner(const void* p) const { return inner_ + offset_of(p); }
  std::size_t offset_of(const void* p) const { return reinterpret_cast<std::uintptr_t>(p) - begin_; }
  Bell& bell() const { return *bell_in(inner_); }
  Board& board() const { return *board_in(inner_); }
  // The file, with offsets as of offset_of(). Its first page is for other processes.
  int file() const { return file_; }
  std::size_t file_bytes() const { return file_bytes_; }
  char* file_memory() const { return inner_; }
  static Bell* bell_in(char* file_memory) { return reinterpret_cast<Bell*>(file_memory); }
  static Board* board_in(char* file_memory) { return reinterpret_cast<Board*>(file_memory + 256); }

  // The programs' addresses, for kernels. Calls nest not.
  void open();
  void close();

 private:
  int device_, file_;
  std::size_t capacity_, file_bytes_;
  std::uintptr_t begin_;
  char* inner_;
  bool open_ = false;
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> live_;
  std::size_t used_ = 0, most_used_ = 0;
  std::int64_t count_ = 0;
};

// The contents of fresh memory, by seed: every value of it is wrong in its own way.
unsigned char poison();

}  // namespace vgpu

#include "bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace vgpu {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Bell::ring() {
  rings.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex(&rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Bell::sleep(std::uint32_t heard, double seconds) {
  const timespec timeout{static_cast<std::time_t>(seconds),
                         static_cast<long>((seconds - static_cast<double>(static_cast<std::time_t>(seconds))) * 1e9)};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (rings.load(std::memory_order_seq_cst) == heard) futex(&rings, FUTEX_WAIT, heard, &timeout);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace vgpu

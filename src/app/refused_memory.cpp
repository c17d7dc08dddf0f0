#include "app/refused_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> refused{0};
std::atomic<void*> reserve{std::malloc(std::size_t{512} << 10)};

}  // namespace

namespace forge {

std::size_t refused_bytes() {
  return refused;
}
void give_back_reserve() {
  std::free(reserve.exchange(nullptr));
}

}  // namespace forge

// std::bad_alloc says nothing of the size.
void* operator new(std::size_t bytes) {
  if (void* const memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  refused = bytes;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

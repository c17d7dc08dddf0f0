#pragma once

#include <array>
#include <cstddef>

#include "core/category.hpp"
#include "device/device_memory.hpp"

namespace forge {

// One region of device memory per rank, used as a stack: buffers for the whole run are allocated first, frames of the
// step above them. Nothing is allocated from the system after construction. The high-water mark counts live bytes, each
// buffer rounded up to core/bytes.hpp's alignment; plan/ predicts it to the byte.
class Arena {
 public:
  explicit Arena(std::size_t capacity);
  // Of no memory before it borrows.
  Arena() = default;
  // An empty stack in memory of another arena's workspace, until the frame there ends.
  void borrow(Arena& from, std::size_t bytes);

  // Uninitialised bytes; throws when the capacity is exceeded, naming the category: the plan was wrong.
  void* allocate(std::size_t bytes, Category category);

  std::size_t live() const { return live_; }
  std::size_t high_water() const { return high_water_; }
  std::size_t capacity() const { return capacity_; }
  // Live bytes of a category at the moment of the high-water mark.
  std::size_t at_high_water(Category category) const;

 private:
  friend class Frame;
  Buffer buffer_;
  std::byte* memory_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t live_ = 0, high_water_ = 0;
  std::array<std::size_t, category_count> by_category_{}, at_mark_{};
};

// Gives back on destruction all that was allocated since construction. Frames nest.
class Frame {
 public:
  explicit Frame(Arena& arena) : arena_(arena), live_(arena.live_), by_category_(arena.by_category_) {}
  ~Frame() {
    arena_.live_ = live_;
    arena_.by_category_ = by_category_;
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Arena& arena_;
  std::size_t live_;
  std::array<std::size_t, category_count> by_category_;
};

}  // namespace forge

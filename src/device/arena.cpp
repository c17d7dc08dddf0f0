#include "device/arena.hpp"

#include <string>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace forge {

Arena::Arena(std::size_t capacity) : buffer_(align_up(capacity)), memory_(buffer_.data()), capacity_(buffer_.bytes()) {}

void Arena::borrow(Arena& from, std::size_t bytes) {
  memory_ = static_cast<std::byte*>(from.allocate(bytes, Category::workspace));
  capacity_ = align_up(bytes);
  live_ = high_water_ = 0;
  by_category_ = at_mark_ = {};
}

void* Arena::allocate(std::size_t bytes, Category category) {
  const std::size_t rounded = align_up(bytes);
  if (live_ + rounded > capacity())
    throw Error("the memory plan is too small: " + format_bytes(bytes) + " of " + std::string(name_of(category)) +
                " on top of " + format_bytes(live_) + " exceed the planned " + format_bytes(capacity()));
  std::byte* p = memory_ + live_;
  live_ += rounded;
  by_category_[static_cast<int>(category)] += rounded;
  if (live_ > high_water_) {
    high_water_ = live_;
    at_mark_ = by_category_;
  }
  return p;
}

std::size_t Arena::at_high_water(Category category) const {
  return at_mark_[static_cast<int>(category)];
}

}  // namespace forge

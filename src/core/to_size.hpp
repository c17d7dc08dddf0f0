#pragma once

#include <cstddef>

namespace forge {

// A number that isn't negative, or an enumerator, as std containers count and number.
template <class I>
constexpr std::size_t to_size(I i) {
  return static_cast<std::size_t>(i);
}

}  // namespace forge

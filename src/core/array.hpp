#pragma once

#include "core/macros.hpp"

namespace forge {

// std::array that device code may use.
template <class T, int N>
struct Array {
  T values[N];

  FORGE_INLINE constexpr T& operator[](int i) { return values[i]; }
  FORGE_INLINE constexpr const T& operator[](int i) const { return values[i]; }
  static constexpr int size() { return N; }
  constexpr const T* begin() const { return values; }
  constexpr const T* end() const { return values + N; }
  friend constexpr bool operator==(const Array& a, const Array& b) {
    for (int i = 0; i < N; ++i)
      if (!(a.values[i] == b.values[i])) return false;
    return true;
  }
};

}  // namespace forge

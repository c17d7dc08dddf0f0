#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace forge {

// How the host values of all ranks are combined. largest, smallest: NaN where any rank has NaN.
enum class HostReduction { sum, largest, smallest };

template <class T>
T combined(HostReduction reduction, T a, T b) {
  switch (reduction) {
    case HostReduction::largest:
      return b > a || b != b ? b : a;
    case HostReduction::smallest:
      return b < a || b != b ? b : a;
    case HostReduction::sum:
      break;
  }
  return a + b;
}

// result ← the combination of the ranks' values, in the order of ranks; of_rank(r): a pointer to as many values, of any
// alignment; rank 0's may be the result's own place.
template <class T, class OfRank>
void combine_ranks(std::span<T> result, int ranks, HostReduction reduction, OfRank of_rank) {
  std::memmove(result.data(), of_rank(0), result.size_bytes());
  for (int r = 1; r < ranks; ++r) {
    const auto* values = reinterpret_cast<const std::byte*>(of_rank(r));
    for (std::size_t i = 0; i < result.size(); ++i) {
      T value;
      std::memcpy(&value, values + i * sizeof(T), sizeof(T));
      result[i] = combined(reduction, result[i], value);
    }
  }
}

}  // namespace forge

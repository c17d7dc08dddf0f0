#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

namespace forge::test {

inline bool environment_has(const char* name, std::string_view value) {
  const char* text = std::getenv(name);
  return text && text == value;
}

// Whether all of a test's volume is wanted, not a part of each kind: FORGE_LONG=1, as tests/run.sh --long sets it.
inline bool long_run() {
  return environment_has("FORGE_LONG", "1");
}
// A third of this part: FORGE_VOLUME=third, as tests/run.sh sets it otherwise. Tests that look for planted mistakes
// have it all.
inline bool third_volume() {
  return environment_has("FORGE_VOLUME", "third") && !long_run();
}

// The step from one case to the next that is taken, where a test takes every n-th.
inline std::size_t stride_of(std::size_t n) {
  return long_run() ? 1 : third_volume() ? 3 * n : n;
}

// Every n-th of them by stride_of, from number `first` on.
template <class T>
std::vector<T> thinned(const std::vector<T>& all, std::size_t n, std::size_t first = 0) {
  std::vector<T> some;
  for (std::size_t i = first; i < all.size(); i += stride_of(n)) some.push_back(all[i]);
  return some;
}

// How many that leaves of so many.
inline std::size_t part_of(std::size_t all, std::size_t n) {
  return (all + stride_of(n) - 1) / stride_of(n);
}

}  // namespace forge::test

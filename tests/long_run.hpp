#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

namespace forge::test {

// Whether all of a test's volume is wanted, not a part of each kind: FORGE_LONG=1, as tests/run.sh --long sets it.
inline bool long_run() {
  const char* text = std::getenv("FORGE_LONG");
  return text && std::string_view(text) == "1";
}

// Every n-th of them, all in a long run.
template <class T>
std::vector<T> thinned(const std::vector<T>& all, std::size_t n) {
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); i += long_run() ? 1 : n) some.push_back(all[i]);
  return some;
}

}  // namespace forge::test

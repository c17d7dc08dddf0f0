#pragma once

#include <cstdint>
#include <vector>

namespace forge {

// A table of a manifest: a dataset of two dimensions, int64 or uint8.
template <class T>
struct Table {
  std::int64_t columns = 1;
  std::vector<T> values;  // rows · columns
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  const T* row(std::int64_t r) const { return values.data() + r * columns; }
};

}  // namespace forge

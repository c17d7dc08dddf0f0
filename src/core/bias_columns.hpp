#pragma once

#include <cstdint>

namespace forge {

// Columns of rows that a rank adds its part of a bias to: so many, from `first` on.
struct BiasColumns {
  std::int64_t first, columns;
};

}  // namespace forge

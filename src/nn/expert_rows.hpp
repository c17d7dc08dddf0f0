#pragma once

#include <cstdint>
#include <vector>

#include "kernels/experts/grouped_product.hpp"

namespace forge {

// Where the rows of this rank's experts begin, for their products: one after the other, with a library, the host says;
// all at once, the device's memory.
struct ExpertRows {
  std::vector<std::int64_t> offsets;  // (E / ep + 1); empty where the host doesn't know
  RowGroups groups;

  std::int64_t count() const { return groups.rows(); }
};

}  // namespace forge

#include "kernels/experts/grouped_cutlass.hpp"

// What a build without CUTLASS has in the place of grouped_cutlass_cuda.cpp.

namespace forge {

bool grouped_rows_by_cutlass(Stream&, const CutlassWorkspace&, const RowGroups&, bool, View<const bf16, 2>,
                             View<const bf16, 3>, View<bf16, 2>, double, bool) {
  return false;
}
bool grouped_sums_by_cutlass(Stream&, const CutlassWorkspace&, const RowGroups&, View<const bf16, 2>,
                             View<const bf16, 2>, bool, View<float, 3>) {
  return false;
}

bool cutlass_built_in() {
  return false;
}
bool cutlass_has_kernels_here() {
  return false;
}

}  // namespace forge

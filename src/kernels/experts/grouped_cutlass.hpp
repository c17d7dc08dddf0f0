#pragma once

#include <cstddef>

#include "kernels/experts/grouped_product.hpp"

namespace forge {

// The products of kernels/experts/grouped_product.hpp by CUTLASS's grouped kernels for sm_90a, with
// the same signature but for memory that they need in a launch. False: not these; nothing is done, since rows of
// operands and results aren't whole pieces of 16 bytes, nothing is to be summed, or a build has none
// (cutlass_built_in()).

// Workspace from the caller; may serve others in the same stream.
struct CutlassWorkspace {
  void* data;
  std::size_t bytes;
  int multiprocessors = 0;  // that the products take; 0: all
};

bool grouped_rows_by_cutlass(Stream&, const CutlassWorkspace&, const RowGroups&, bool weights_by_rows,
                             View<const bf16, 2> a, View<const bf16, 3> b, View<bf16, 2> c, double alpha = 1,
                             bool adds = false);
bool grouped_sums_by_cutlass(Stream&, const CutlassWorkspace&, const RowGroups&, View<const bf16, 2> a,
                             View<const bf16, 2> b, bool adds, View<float, 3> c);

bool cutlass_built_in();
// Whether they are, for this GPU.
bool cutlass_has_kernels_here();

}  // namespace forge

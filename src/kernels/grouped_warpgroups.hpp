#pragma once

#include "kernels/grouped_product.hpp"

namespace forge {

// The same products by warpgroups, on a GPU that has them, of operands and results whose rows are whole pieces of 16
// bytes. False: not these; nothing is done.
bool grouped_rows_by_warpgroups(Stream&, const RowGroups&, bool weights_by_rows, View<const bf16, 2> a,
                                View<const bf16, 3> b, View<bf16, 2> c);
bool grouped_sums_by_warpgroups(Stream&, const RowGroups&, View<const bf16, 2> a, View<const bf16, 2> b, bool adds,
                                View<float, 3> c);

}  // namespace forge

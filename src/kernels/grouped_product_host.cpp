#include "core/error.hpp"
#include "kernels/grouped_product.hpp"

namespace forge {

// Decks that ask for these are refused on CPUs before anything is computed (app/device_fit.cpp).
void grouped_rows(Stream&, const RowGroups&, bool, View<const bf16, 2>, View<const bf16, 3>, View<bf16, 2>) {
  throw Error("this build computes on the CPU and has no grouped products by tensor cores");
}
void grouped_sums(Stream&, const RowGroups&, View<const bf16, 2>, View<const bf16, 2>, View<float, 3>) {
  throw Error("this build computes on the CPU and has no grouped products by tensor cores");
}

}  // namespace forge

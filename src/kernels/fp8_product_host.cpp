#include "core/error.hpp"
#include "kernels/fp8_product.hpp"
#include "kernels/gemm.hpp"

namespace forge {

// Decks that ask for these are refused on CPUs before anything is computed (app/device_fit.cpp).
Fp8Codes fp8_encode(Stream&, View<const bf16, 2>, const ScaledOperand&, bool, bool, View<const float, 1>,
                    View<std::uint8_t, 1>, std::int64_t) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}

template <class TC>
void fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, bool, View<TC, 2>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}
template void fp8_product<bf16>(Stream&, const Fp8Codes&, const Fp8Codes&, bool, View<bf16, 2>);
template void fp8_product<float>(Stream&, const Fp8Codes&, const Fp8Codes&, bool, View<float, 2>);

void fp8_grouped_rows(Stream&, const RowGroups&, const Fp8Codes&, const Fp8Codes&, View<bf16, 2>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}

template <class TC>
bool Gemm::fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, Fp8Scaling, bool, View<TC, 2>, View<float, 1>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}
template bool Gemm::fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, Fp8Scaling, bool, View<bf16, 2>,
                                View<float, 1>);
template bool Gemm::fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, Fp8Scaling, bool, View<float, 2>,
                                View<float, 1>);

}  // namespace forge

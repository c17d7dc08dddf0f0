#include "core/error.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/gemm/gemm.hpp"

namespace forge {

// No run on CPUs asks for these (multiplies_codes() of model/fp8_codes.hpp).
Fp8Codes fp8_encode(Stream&, View<const bf16, 2>, const ScaledOperand&, bool, bool, View<const float, 1>,
                    View<std::uint8_t, 1>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}

template <class TC>
void Gemm::fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, Fp8Scaling, bool, View<TC, 2>, View<float, 1>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}
template void Gemm::fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, Fp8Scaling, bool, View<bf16, 2>,
                                View<float, 1>);
template void Gemm::fp8_product(Stream&, const Fp8Codes&, const Fp8Codes&, Fp8Scaling, bool, View<float, 2>,
                                View<float, 1>);

}  // namespace forge

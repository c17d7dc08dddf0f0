#include "core/error.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/gemm/gemm.hpp"

namespace forge {

// No run on CPUs asks for these (multiplies_codes() of model/fp8_codes.hpp).
Fp8Operands fp8_encode(Stream&, const Fp8Input&, const Fp8Input&, bool, Fp8Scaling, View<float, 1>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}

template <class TC>
void Gemm::fp8_product(Stream&, const Fp8Operands&, Fp8Scaling, bool, View<TC, 2>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}
template void Gemm::fp8_product(Stream&, const Fp8Operands&, Fp8Scaling, bool, View<bf16, 2>);
template void Gemm::fp8_product(Stream&, const Fp8Operands&, Fp8Scaling, bool, View<float, 2>);

}  // namespace forge

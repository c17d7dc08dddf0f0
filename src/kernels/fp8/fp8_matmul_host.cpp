#include "core/error.hpp"
#include "kernels/fp8/fp8_operand.hpp"
#include "kernels/gemm/gemm.hpp"

namespace forge {

// No run on CPUs asks for these (multiplies_codes() of fp8/codes.hpp).
Array<CodeOperands, 2> fp8_encode(Stream&, std::span<const Fp8Input>, bool, CodeScaling, View<float, 1>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}

int cublas_version() {
  return 0;
}

template <class TC>
void Gemm::code_product(Stream&, const CodeOperands&, CodeScaling, bool, View<TC, 2>) {
  throw Error("this build computes on the CPU and has no products of 8-bit operands");
}
template void Gemm::code_product(Stream&, const CodeOperands&, CodeScaling, bool, View<bf16, 2>);
template void Gemm::code_product(Stream&, const CodeOperands&, CodeScaling, bool, View<float, 2>);

}  // namespace forge

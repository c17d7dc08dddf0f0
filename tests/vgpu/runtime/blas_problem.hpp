#pragma once

#include <cstdint>
#include <string>

#include "api.hpp"
#include "matmul.hpp"

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  vgpu::Factors a_factors = {}, b_factors = {};
  std::int8_t fast_accumulation = 0;
  std::int32_t multiprocessors = 0;  // 0: all
};

namespace vgpu {

// The arguments of a product.
struct Problem {
  cublasLtMatmulDesc_t desc;
  const Matrix &a, &b, &c, &d;

  std::uint64_t inner() const { return desc->transpose_a != CUBLAS_OP_N ? a.rows : a.columns; }
};

inline std::string text_of(const Matrix& m) {
  return std::to_string(m.rows) + " x " + std::to_string(m.columns) + " (" + std::to_string(m.leading) + ")";
}

// Why cuBLASLt has no such product of 8-bit numbers; "" where it has, and for other types.
std::string fp8_unsupported(const Problem& problem);
// Why cublasLtMatmul(), and only that, refuses an operand's one scale by its address, as an H100's does (measured; not
// in the documentation); "" where it doesn't.
std::string scale_unsupported(const Problem& problem);
// The error of the addresses of such a product's factors, or of factors of another type's; "": none.
std::string factors_broken(Device& device, const Problem& problem);

}  // namespace vgpu

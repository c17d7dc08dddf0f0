#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cublasLt.h"
#include "work.hpp"

namespace vgpu {

std::size_t size_of(cudaDataType_t type);

// A column-major matrix: where it is, for the program and as the runtime sees it, follows from the pointer.
struct Matrix {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  std::int32_t count = 1;   // of a batch
  std::int64_t stride = 0;  // elements from one of them to the next

  // Bytes from the first element to behind the last, of one matrix and of the batch.
  std::size_t bytes_of_one() const {
    return rows == 0 || columns == 0 ? 0 : ((columns - 1) * static_cast<std::uint64_t>(leading) + rows) * size_of(type);
  }
  std::size_t bytes() const { return bytes_to(count - 1) + bytes_of_one(); }
  std::size_t bytes_to(std::int32_t number) const {
    return static_cast<std::uint64_t>(number) * static_cast<std::uint64_t>(stride) * size_of(type);
  }
};

// Factors of the 8-bit numbers of an operand: where, and in which order (cublasLtMatmulMatrixScale_t).
struct Factors {
  const void* data = nullptr;
  std::int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;

  // Floats of an operand of so many lines (rows of D of A's, columns of B's) whose inner dimension is k.
  std::uint64_t count(std::uint64_t lines, std::uint64_t k) const {
    const std::uint64_t blocks = (k + 127) / 128;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) return lines;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return blocks * lines;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) return (blocks + 3) / 4 * 4 * ((lines + 127) / 128);
    return 1;
  }
  // Which of them is the one of number l of a line: the order of the documentation's "Scaling factors layouts".
  std::uint64_t at(std::uint64_t line, std::uint64_t l, std::uint64_t lines, std::uint64_t k) const {
    const std::uint64_t blocks = (k + 127) / 128;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) return line;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return l / 128 * lines + line;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) return line / 128 * ((blocks + 3) / 4 * 4) + l / 128;
    return 0;
  }
};

inline bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

// D = alpha · op(A) op(B) + beta · C. Sums run over `splits` parts of the inner dimension, one after another, in fp64
// for CUDA_R_64F and 8-bit operands, each number times its factor, and in fp32 else; with several, the parts meet in
// the workspace. A batch has no such parts.
struct Product {
  Matrix a, b, c, d;
  bool transpose_a, transpose_b;
  double alpha, beta;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  std::size_t workspace_bytes;
  int splits;
  Factors a_factors, b_factors;

  bool in_fp64() const { return d.type == CUDA_R_64F || is_fp8(a.type); }
  std::uint64_t inner() const { return transpose_a ? a.rows : a.columns; }
  // One of the batch, alone.
  Product of_batch(std::int32_t number) const {
    Product one = *this;
    const auto at = [&](const void* data, const Matrix& m) {
      return static_cast<const char*>(data) + m.bytes_to(number);
    };
    one.a_data = at(a_data, a);
    one.b_data = at(b_data, b);
    one.c_data = at(c_data, c);
    one.d_data = static_cast<char*>(d_data) + d.bytes_to(number);
    return one;
  }
};

// Takes two steps; the workspace is the product's from the first to the second.
std::unique_ptr<Work> product_work(const Product& product);

// C = alpha · A + beta · B of one shape; B may be null where beta is 0.
struct Sum {
  Matrix a, b, c;
  double alpha, beta;
  const void *a_data, *b_data;
  void* c_data;
};
std::unique_ptr<Work> sum_work(const Sum& sum);

}  // namespace vgpu

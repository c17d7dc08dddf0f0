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

  // Bytes from the first element to behind the last.
  std::size_t bytes() const {
    return rows == 0 || columns == 0 ? 0 : ((columns - 1) * static_cast<std::uint64_t>(leading) + rows) * size_of(type);
  }
};

// D = alpha · op(A) op(B) + beta · C. Sums run over `splits` parts of the inner dimension, one after another, in fp64
// for CUDA_R_64F and in fp32 else; with several, the parts meet in the workspace.
struct Product {
  Matrix a, b, c, d;
  bool transpose_a, transpose_b;
  double alpha, beta;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  std::size_t workspace_bytes;
  int splits;

  std::uint64_t inner() const { return transpose_a ? a.rows : a.columns; }
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

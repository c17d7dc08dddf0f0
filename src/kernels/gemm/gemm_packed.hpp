#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.hpp"

namespace forge {

// op(X)(i,j) of a stored row-major matrix: data[i * row + j * column], so that a transpose is a swap of the strides.
template <class T>
struct Operand {
  const T* data;
  std::int64_t row, column;
};

// C(M,N) = alpha · A(M,K) · B(K,N) + beta · C on the CPU, for any strides of A and B; the rows of C are `pitch` apart.
// beta 0 doesn't read C. Sums are in the type of C and run over K in one fixed order: the bits depend on the vector
// path (device/isa.hpp) but not on the number of threads, on M and N, on the workspace, or on where a block lies.
//
// Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008: panels of B are packed into the
// workspace (second-level cache) and shared by all threads, one panel of A is packed on each thread's stack
// (first-level cache), and a block of C stays in registers. A workspace too small for one panel of B is replaced by the
// stack. T, A: double, double; float, float; bf16, float (converted exactly while packing).
template <class T, class A>
void packed_gemm(int threads, std::int64_t m, std::int64_t n, std::int64_t k, A alpha, Operand<T> a, Operand<T> b,
                 A beta, A* c, std::int64_t pitch, void* workspace, std::size_t workspace_bytes);

}  // namespace forge

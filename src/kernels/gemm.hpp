#pragma once

#include <cstddef>
#include <memory>

#include "device/stream.hpp"
#include "tensor/view.hpp"

namespace forge {

enum class Transpose { no, yes };

// Matrix products of one rank. Keeps the libraries' handles and primitives (made once a shape) and one fixed workspace
// that the caller allocates; a library may only choose algorithms that fit into it.
//   fp64: plain tiled loops on the CPU, cuBLAS on CUDA; fp32: oneDNN, cuBLASLt; bf16: oneDNN where the processor has
//   AMX, else both operands are converted to fp32 in pieces that fit the workspace; cuBLASLt.
class Gemm {
 public:
  Gemm(void* workspace, std::size_t workspace_bytes);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // C(M,N) = alpha · op(A)(M,K) · op(B)(K,N) + beta · C, row-major; pitches are respected. beta 0 never reads C.
  // Types of A and B, and of C: double, double; float, float; bf16, bf16; bf16, float (weight gradients, logits).
  template <class T, class TC>
  void operator()(Stream& stream, Transpose ta, Transpose tb, double alpha, View<const T, 2> a, View<const T, 2> b,
                  double beta, View<TC, 2> c);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

}  // namespace forge

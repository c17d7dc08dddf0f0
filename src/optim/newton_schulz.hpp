#pragma once

#include <vector>

#include "kernels/gemm/gemm.hpp"
#include "layout/whole_matrices.hpp"
#include "nn/context.hpp"
#include "optim/matrix_parts.hpp"

namespace forge {

// Newton and Schulz's iteration of a stack of matrices X (B, m, n), which takes each near to U Vᵀ of its singular value
// decomposition (Jordan et al. 2024; torch.optim.Muon). In the compute type:
//   X ← X / max(‖X‖, ε);  five times  X ← a X + (b S + c S²) X,  S = X Xᵀ;  for m > n  X (b S + c S²), S = XᵀX
//   a = 3.4445, b = −4.775, c = 2.0315, ε = 1e-7
template <class T>
class NewtonSchulz {
 public:
  // `most`: matrices of a stack.
  NewtonSchulz(Gemm& gemm, std::int64_t most) : gemm_(gemm), offsets_(to_size(most) + 1) {}

  // The stack stands in buffers.x; returns where the result stands, x or y.
  View<T, 1> operator()(Stream& stream, const MatrixBuffers<T>& buffers, std::int64_t matrices, std::int64_t rows,
                        std::int64_t columns);
  // Sees every product before it runs.
  void set_tape(OperationTape* tape) { tape_ = tape; }

 private:
  // c ← alpha · a · op(b) + beta · c, of each matrix of three stacks.
  void product(Stream& stream, double alpha, View<T, 3> a, Transpose tb, View<T, 3> b, double beta, View<T, 3> c);
  // c ← aᵀ a
  void square(Stream& stream, View<T, 3> a, View<T, 3> c);

  Gemm& gemm_;
  std::vector<std::int64_t> offsets_;
  OperationTape* tape_ = nullptr;
};

}  // namespace forge

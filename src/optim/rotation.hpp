#pragma once

#include "kernels/gemm/gemm.hpp"
#include "layout/rotated_state.hpp"
#include "nn/context.hpp"
#include "optim/update.hpp"

namespace forge {

// An owner's work with SOAP (soap.cpp).
template <class T>
class Rotation {
 public:
  using A = acc_t<T>;
  explicit Rotation(Gemm& gemm) : gemm_(gemm) {}

  // x (m, n): the gradient, and then the update, before the rate. kept: of this matrix (RotatedState). Nothing that is
  // kept changes unless the step is finite.
  void operator()(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const RotatedState& state,
                  View<A, 1> kept, View<T, 1> x, const RotationBuffers<A>& buffers);
  // Sees every product of an update before it runs, but for those that refresh the bases.
  void set_tape(OperationTape* tape) { tape_ = tape; }

 private:
  struct Matrix;

  void product(Stream& stream, const View<const A, 2>& a, Transpose ta, const View<const A, 2>& b, Transpose tb,
               const View<A, 2>& c);
  // `to` ← B_L from B_Rᵀ, or back: B_Lᵀ from B_R.
  void rotate(Stream& stream, const Matrix& matrix, A* from, A* to, bool back);
  void refresh(Stream& stream, const UpdateStep& step, const View<A, 2>& covariance, const View<A, 2>& basis,
               const RotationBuffers<A>& buffers);

  Gemm& gemm_;
  OperationTape* tape_ = nullptr;
};

// q ← Qᵀ of Aᵀ = Q R with Householder's reflections, where R's diagonal is positive, so that Q is unique: rows of q are
// the rows of `a` (k, k) made orthonormal one after the other. Uses `a` up. Memory: 2 k numbers of `reflections`.
template <class A>
void orthonormal_rows(Stream& stream, View<A, 2> a, View<A, 2> q, View<double, 1> reflections);

}  // namespace forge

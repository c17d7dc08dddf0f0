#pragma once

#include "nn/fp8/operands.hpp"
#include "nn/linear.hpp"
#include "nn/row_operand.hpp"

namespace forge {

// The products of a block with its weights, whose operands the deck may have rounded: as its recipe says, before the
// product, wherever it is computed. Layers say only how tp splits the weight.

// y(R,N) = x(R,K) Wᵀ + b; rows as of scaled_product.
template <class T>
void block_linear_forward(const Context<T>& ctx, const MatrixSplit& split, const RowOperand<T>& x, View<const T, 2> w,
                          View<const T, 1> b, View<T, 2> y) {
  if (multiply_codes<T>(ctx, ProductOf::output, split, x, w, false, y)) {
    if (!b.empty()) add_bias<T>(ctx.stream, b, y);
    return;
  }
  const Operands<T> o = operands_of<T>(ctx, ProductOf::output, split, x, w);
  linear_forward<T>(ctx, o.a, o.b, b, y, o.rounded);
}

// dx(R,K) = dy(R,N) W, or dx += dy W.
template <class T>
void block_linear_backward_input(const Context<T>& ctx, const MatrixSplit& split, const RowOperand<T>& dy,
                                 View<const T, 2> w, View<T, 2> dx, bool adds = false) {
  if (multiply_codes<T>(ctx, ProductOf::input_gradient, split, dy, w, adds, dx)) return;
  const Operands<T> o = operands_of<T>(ctx, ProductOf::input_gradient, split, dy, w);
  linear_backward_input<T>(ctx, o.a, o.b, dx, adds, o.rounded);
}

// dW(N,K) += dyᵀ x; of a frozen W nothing.
template <class T>
void block_linear_backward_weight(const Context<T>& ctx, const MatrixSplit& split, const RowOperand<T>& dy,
                                  View<const T, 2> x, View<acc_t<T>, 2> dw) {
  if (dw.empty()) return;
  if (is_of_codes(ctx, ProductOf::weight_gradient, dw)) clear_fresh(ctx, dw.data, dw.size());
  if (multiply_codes<T>(ctx, ProductOf::weight_gradient, split, dy, x, true, dw)) return;
  const Operands<T> o = operands_of<T>(ctx, ProductOf::weight_gradient, split, dy, x);
  linear_backward_weight<T>(ctx, o.a, o.b, dw, o.rounded);
}

// The same of this rank's experts; W(E / ep, N, K). Weight gradients are never rounded: expert_backward_weight of
// nn/linear.hpp.
template <class T>
void block_expert_forward(const Context<T>& ctx, const ExpertRows& rows, const MatrixSplit& split, View<const T, 2> x,
                          View<const T, 3> w, View<T, 2> y) {
  const Operands<T> o = expert_operands<T>(ctx, ProductOf::output, split, x, w);
  expert_forward<T>(ctx, rows, o.a, View<const T, 3>(o.b.data, w.extents), y, o.rounded);
}
template <class T>
void block_expert_backward_input(const Context<T>& ctx, const ExpertRows& rows, const MatrixSplit& split,
                                 View<const T, 2> dy, View<const T, 3> w, View<T, 2> dx) {
  const Operands<T> o = expert_operands<T>(ctx, ProductOf::input_gradient, split, dy, w);
  expert_backward_input<T>(ctx, rows, o.a, View<const T, 3>(o.b.data, w.extents), dx, o.rounded);
}

}  // namespace forge

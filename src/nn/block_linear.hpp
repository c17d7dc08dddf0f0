#pragma once

#include "kernels/fp8.hpp"
#include "nn/linear.hpp"

namespace forge {

// The products of a block with its weights, which the deck may have in FP8: operands are rounded as its recipe says
// (model/scaled_product.hpp) before the product, wherever it is computed. Layers say only how tp splits the weight.

// Two operands as the product reads them.
template <class T>
struct Operands {
  View<const T, 2> a, b;
  bool fp8 = false;
};

// amax ← the largest of the ranks' in the group; those of the two operands that the ranks share stand together.
template <class T>
void reduce_amax(Context<T>& ctx, Communicator* group, const ScaledProduct& p, bool of_a, bool of_b) {
  if (!group || (!of_a && !of_b)) return;
  const Fp8Buffers<T>& s = ctx.fp8;
  const View<float, 1> amax = s.amax.slice(of_a ? 0 : p.a.groups(), of_b ? p.groups() : p.a.groups());
  const View<float, 1> all = s.gathered.slice(0, group->size() * amax.rows());
  group->all_gather(ctx.stream, View<const float, 1>(amax), all);
  fp8_amax_of_ranks(ctx.stream, group->size(), all, amax);
}

// An operand in `memory`, rounded with the largest magnitudes `amax`.
template <class T>
View<const T, 2> round_operand(Context<T>& ctx, View<const T, 2> x, const ScaledOperand& operand,
                               View<const float, 1> amax, View<T, 1> memory) {
  const View<T, 2> y(memory.data, {{x.rows(), x.columns()}});
  fp8_round<T>(ctx.stream, x, operand, ctx.buffers.fp8.exact, amax, y);
  return y;
}

// a: the activation or output gradient; b: the weight, or in its gradient the activation.
template <class T>
Operands<T> operands_of(Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<const T, 2> a, View<const T, 2> b) {
  if (!ctx.fp8_block || !rounds_product(ctx.buffers.fp8.recipe, of)) return {a, b};
  const ScaledProduct p = scaled_product(ctx.buffers, of, a.rows(), w, ctx.groups.tp_rank());
  require(p.a.columns == a.columns() && p.b.rows == b.rows() && p.b.columns == b.columns(),
          "a block's product has another weight than its plan");
  const Fp8Buffers<T>& s = ctx.fp8;
  const View<float, 1> amax_a = s.amax.slice(0, p.a.groups()), amax_b = s.amax.slice(p.a.groups(), p.groups());
  fp8_amax<T>(ctx.stream, a, p.a, s.partials, amax_a);
  fp8_amax<T>(ctx.stream, b, p.b, s.partials, amax_b);
  reduce_amax(ctx, ctx.groups.tp, p, p.a.over_tp, p.b.over_tp);
  reduce_amax(ctx, ctx.groups.cp, p, p.a.over_cp, p.b.over_cp);
  if (ctx.operations) ctx.operations->scales(ctx.stream, s.amax.slice(0, p.groups()));
  return {round_operand<T>(ctx, a, p.a, amax_a, s.a), round_operand<T>(ctx, b, p.b, amax_b, s.b), true};
}

// y(R,N) = x(R,K) Wᵀ + b; rows as of scaled_product.
template <class T>
void block_linear_forward(Context<T>& ctx, const MatrixSplit& split, View<const T, 2> x, View<const T, 2> w,
                          View<const T, 1> b, View<T, 2> y) {
  const Operands<T> o = operands_of<T>(ctx, ProductOf::output, split, x, w);
  linear_forward<T>(ctx, o.a, o.b, b, y, o.fp8);
}

// dx(R,K) = dy(R,N) W, or dx += dy W.
template <class T>
void block_linear_backward_input(Context<T>& ctx, const MatrixSplit& split, View<const T, 2> dy, View<const T, 2> w,
                                 View<T, 2> dx, bool adds = false) {
  const Operands<T> o = operands_of<T>(ctx, ProductOf::input_gradient, split, dy, w);
  linear_backward_input<T>(ctx, o.a, o.b, dx, adds, o.fp8);
}

// dW(N,K) += dyᵀ x.
template <class T>
void block_linear_backward_weight(Context<T>& ctx, const MatrixSplit& split, View<const T, 2> dy, View<const T, 2> x,
                                  View<acc_t<T>, 2> dw) {
  const Operands<T> o = operands_of<T>(ctx, ProductOf::weight_gradient, split, dy, x);
  linear_backward_weight<T>(ctx, o.a, o.b, dw, o.fp8);
}

}  // namespace forge

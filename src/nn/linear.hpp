#pragma once

#include "nn/context.hpp"

namespace forge {

// y(R,N) = x(R,K) Wᵀ + b; W(N,K), b(N) or empty.
template <class T, class TY = T>
void linear_forward(Context<T>& ctx, View<const T, 2> x, View<const T, 2> w, View<const T, 1> b, View<TY, 2> y) {
  ctx.gemm(ctx.stream, Transpose::no, Transpose::yes, 1.0, x, w, 0.0, y);
  if constexpr (std::is_same_v<T, TY>)
    if (!b.empty()) add_bias<T>(ctx.stream, b, y);
}

// dx(R,K) = dy(R,N) W, or dx += dy W.
template <class T>
void linear_backward_input(Context<T>& ctx, View<const T, 2> dy, View<const T, 2> w, View<T, 2> dx, bool adds = false) {
  ctx.gemm(ctx.stream, Transpose::no, Transpose::no, 1.0, dy, w, adds ? 1.0 : 0.0, dx);
}

// The sums of a product's or a norm's rows, before they are added up: some rows of as many columns.
template <class T>
View<acc_t<T>, 2> partial_sums(const RowScratch<T>& scratch, std::int64_t rows, std::int64_t columns) {
  return View<acc_t<T>, 2>(scratch.partial.data, {{norm_partial_rows(rows), columns}});
}

// db(N) += Σ_r dy.
template <class T>
void bias_backward(Context<T>& ctx, View<const T, 2> dy, View<acc_t<T>, 1> db, const RowScratch<T>& scratch) {
  if (db.empty()) return;
  column_sum<T>(ctx.stream, dy, partial_sums(scratch, dy.rows(), dy.columns()), db);
}

// dW(N,K) += dyᵀ x.
template <class T>
void linear_backward_weight(Context<T>& ctx, View<const T, 2> dy, View<const T, 2> x, View<acc_t<T>, 2> dw) {
  ctx.gemm(ctx.stream, Transpose::yes, Transpose::no, 1.0, dy, x, 1.0, dw);
}

}  // namespace forge

#pragma once

#include "kernels/experts/grouped_product.hpp"
#include "kernels/gemm/few_rows.hpp"
#include "nn/context.hpp"
#include "nn/expert_rows.hpp"

namespace forge {

// C(m,n) = or += A(m,k) B(k,n) runs next.
template <class T, class TC>
void note_product(const Context<T>& ctx, const View<TC, 2>& c, std::int64_t k, bool rounded = false,
                  bool codes = false) {
  if (!ctx.operations) return;
  ctx.operations->product({c.rows(), c.columns(), k, dtype_of<T>, dtype_of<TC>, rounded, ProductOf::output, codes});
}
// The experts' products of so many columns run next.
template <class T>
void note_experts(const Context<T>& ctx, bool sums, const ExpertRows& rows, std::int64_t n, std::int64_t k,
                  bool rounded, bool grouped) {
  if (!ctx.operations) return;
  const DType result = sums ? dtype_of<acc_t<T>> : dtype_of<T>;
  ctx.operations->experts({sums, rows.groups.count, rows.count(), n, k, dtype_of<T>, result, rounded, grouped});
}

// y(R,N) = x(R,K) Wᵀ + b; W(N,K), b(N) or empty. A generation's few rows have their own kernel.
template <class T, class TY = T>
void linear_forward(const Context<T>& ctx, View<const T, 2> x, View<const T, 2> w, View<const T, 1> b, View<TY, 2> y,
                    bool rounded = false) {
  note_product(ctx, y, x.columns(), rounded);
  if (ctx.cache && x.rows() <= few_rows && few_rows_pay(dtype_of<T>))
    few_rows_product<T, TY>(ctx.stream, x, w, y);
  else
    ctx.gemm(ctx.stream, Transpose::no, Transpose::yes, 1.0, x, w, 0.0, y);
  if constexpr (std::is_same_v<T, TY>)
    if (!b.empty()) add_bias<T>(ctx.stream, b, y);
}

// dx(R,K) = dy(R,N) W, or dx += dy W.
template <class T>
void linear_backward_input(const Context<T>& ctx, View<const T, 2> dy, View<const T, 2> w, View<T, 2> dx,
                           bool adds = false, bool rounded = false) {
  note_product(ctx, dx, dy.columns(), rounded);
  ctx.gemm(ctx.stream, Transpose::no, Transpose::no, 1.0, dy, w, adds ? 1.0 : 0.0, dx);
}

// The sums of a product's rows, before they are added up: some rows of as many columns.
template <class T>
View<acc_t<T>, 2> partial_sums(const RowScratch<T>& scratch, std::int64_t rows, std::int64_t columns) {
  return View<acc_t<T>, 2>(scratch.partial.data, {{norm_partial_rows(rows), columns}});
}
// Those of a norm's backward pass; LayerNorm has them twice.
template <class T>
View<acc_t<T>, 2> norm_sums(const RowScratch<T>& scratch, std::int64_t rows, std::int64_t columns, int times = 1) {
  return View<acc_t<T>, 2>(scratch.partial.data, {{times * norm_backward_chunks(rows), columns}});
}

// db(N) += Σ_r dy.
template <class T>
void bias_backward(const Context<T>& ctx, View<const T, 2> dy, View<acc_t<T>, 1> db, const RowScratch<T>& scratch) {
  if (db.empty()) return;
  column_sum<T>(ctx.stream, dy, partial_sums(scratch, dy.rows(), dy.columns()), db);
}

// β of dw ← product + β dw: 0 where nothing stands in dw yet.
template <class T>
double factor_of_sums(const Context<T>& ctx, const View<acc_t<T>, 2>& dw) {
  return ctx.services.fresh && ctx.services.fresh->take(ctx.stream, dw) ? 0.0 : 1.0;
}
// Zeros where nothing stands in dw yet, for products that can only add.
template <class T>
void clear_fresh(const Context<T>& ctx, const acc_t<T>* dw, std::int64_t n) {
  if (ctx.services.fresh) ctx.services.fresh->clear(ctx.stream, dw, n);
}

// dW(N,K) += dyᵀ x.
template <class T>
void linear_backward_weight(const Context<T>& ctx, View<const T, 2> dy, View<const T, 2> x, View<acc_t<T>, 2> dw,
                            bool rounded = false) {
  note_product(ctx, dw, dy.rows(), rounded);
  ctx.gemm(ctx.stream, Transpose::yes, Transpose::no, 1.0, dy, x, factor_of_sums(ctx, dw), dw);
}

// Products of experts' rows with a weight each, y(R,N) = or += scale x(R,K) Wᵀ or else W: one launch where the
// context groups them. A generation's few rows have their own kernel.
struct ExpertSum {
  double scale = 1;
  bool adds = false;
};
template <class T>
void expert_rows(const Context<T>& ctx, const ExpertRows& rows, Transpose tb, View<const T, 2> x, View<const T, 3> w,
                 View<T, 2> y, bool rounded, const ExpertSum& sum = {}) {
  const bool grouped = ctx.buffers.grouped;
  note_experts<T>(ctx, false, rows, y.columns(), x.columns(), rounded, grouped);
  if (grouped) return ctx.gemm.template grouped_rows<T>(ctx.stream, rows.groups, tb, x, w, y, sum.scale, sum.adds);
  const bool plain = sum.scale == 1 && !sum.adds;
  if (plain && ctx.cache && tb == Transpose::yes && x.rows() <= few_rows && few_rows_pay(dtype_of<T>)) {
    for (std::int64_t e = 0; e < w.rows(); ++e) {
      const std::int64_t begin = rows.offsets[to_size(e)], end = rows.offsets[to_size(e) + 1];
      const View<const T, 2> matrix(w.row(e), {{w.extent(1), w.extent(2)}});
      if (begin < end) few_rows_product<T, T>(ctx.stream, x.slice(begin, end), matrix, y.slice(begin, end));
    }
    return;
  }
  ctx.gemm.template grouped_rows<T, T>(ctx.stream, rows.offsets, tb, sum.scale, x, w, sum.adds ? 1.0 : 0.0, y);
}

// The same of this rank's experts; W(E / ep, N, K).
template <class T>
void expert_forward(const Context<T>& ctx, const ExpertRows& rows, View<const T, 2> x, View<const T, 3> w, View<T, 2> y,
                    bool rounded = false) {
  expert_rows<T>(ctx, rows, Transpose::yes, x, w, y, rounded);
}
template <class T>
void expert_backward_input(const Context<T>& ctx, const ExpertRows& rows, View<const T, 2> dy, View<const T, 3> w,
                           View<T, 2> dx, bool rounded = false) {
  expert_rows<T>(ctx, rows, Transpose::no, dy, w, dx, rounded);
}
// Nothing of frozen experts.
template <class T>
void expert_backward_weight(const Context<T>& ctx, const ExpertRows& rows, View<const T, 2> dy, View<const T, 2> x,
                            View<acc_t<T>, 3> dw) {
  if (dw.empty()) return;
  const bool grouped = ctx.buffers.grouped;
  note_experts<T>(ctx, true, rows, dy.columns(), x.columns(), false, grouped);
  const View<acc_t<T>, 2> all(dw.data, {{dw.extent(0) * dw.extent(1), dw.extent(2)}});
  if (grouped) {
    const bool adds = factor_of_sums(ctx, all) > 0;
    return ctx.gemm.template grouped_sums<T>(ctx.stream, rows.groups, dy, x, adds, dw);
  }
  ctx.gemm.template grouped_sums<T, acc_t<T>>(ctx.stream, rows.offsets, 1.0, dy, x, factor_of_sums(ctx, all), dw);
}

}  // namespace forge

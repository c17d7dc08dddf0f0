#pragma once

#include "nn/expert_adapter.plan.hpp"
#include "nn/linear.hpp"

namespace forge {

// The low-rank products beside one of a layer's experts (nn/expert_adapter.plan.hpp), over the rows of a round. They
// are added before a product's sum over etp. W runs with B, as the experts' own W does.
template <class T>
struct ExpertAdapter {
  const Context<T>& ctx;
  BlockProduct product;              // expert_gate_up or expert_down
  const ExpertLowRank<const T>& w;   // none: the experts have none here
  const ExpertLowRank<acc_t<T>>& g;  // none in forward
  const ExpertRows& rows;            // of the round
  View<T, 2> u, d_u;                 // (R, n r) of the round; d_u in B alone

  // u = s x A_eᵀ of the rows of each expert e
  void low_rows(View<const T, 2> x) const {
    if (!w.a.empty()) expert_rows<T>(ctx, rows, Transpose::yes, x, w.a, u, false, {scale()});
  }
  // y(R, N) += u B_eᵀ, tensor by tensor; u as of low_rows().
  void forward(View<const T, 2> x, View<T, 2> y) const {
    if (w.a.empty()) return;
    low_rows(x);
    each([&](std::size_t i, std::int64_t column, std::int64_t first, std::int64_t count) {
      const View<const T, 2> of = columns_of(u, column, rank());
      expert_rows<T>(ctx, rows, Transpose::yes, of, w.b[i], columns_of(y, first, count), false, {1, true});
    });
  }
  // d_u = s dy B_e, tensor by tensor; dx(R, K) += d_u A_e
  void backward_input(View<const T, 2> dy, View<T, 2> dx) const {
    if (w.a.empty()) return;
    each([&](std::size_t i, std::int64_t column, std::int64_t first, std::int64_t count) {
      const View<const T, 2> of = columns_of(dy, first, count);
      expert_rows<T>(ctx, rows, Transpose::no, of, w.b[i], columns_of(d_u, column, rank()), false, {scale()});
    });
    expert_rows<T>(ctx, rows, Transpose::no, d_u, w.a, dx, false, {1, true});
  }
  // dB_e += dyᵀ u, tensor by tensor; dA_e += d_uᵀ x; d_u as backward_input() left it.
  void backward_weight(View<const T, 2> dy, View<const T, 2> x) const {
    if (g.a.empty()) return;
    each([&](std::size_t i, std::int64_t column, std::int64_t first, std::int64_t count) {
      expert_backward_weight<T>(ctx, rows, columns_of(dy, first, count), columns_of(u, column, rank()), g.b[i]);
    });
    expert_backward_weight<T>(ctx, rows, d_u, x, g.a);
  }

 private:
  std::int64_t rank() const { return ctx.spec().options.adapter.rank; }
  double scale() const { return adapter_scale(ctx.spec().options.adapter); }
  // f(i-th adapter, the first of its columns of u, the first of its tensor's columns in y, their number)
  template <class F>
  void each(F f) const {
    std::int64_t first = 0, i = 0;
    for (const AdaptedTensor& t : tensors_of(ctx.spec(), product)) {
      if (t.adapted) {
        f(to_size(i), i * rank(), first, t.rows);
        ++i;
      }
      first += t.rows;
    }
  }
};

}  // namespace forge

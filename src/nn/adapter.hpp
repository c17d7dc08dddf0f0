#pragma once

#include "kernels/kernels.hpp"
#include "nn/adapter.plan.hpp"
#include "nn/linear.hpp"
#include "nn/rows.hpp"

namespace forge {

// The low-rank products beside one of a block's (nn/adapter.plan.hpp). Where tp splits W's rows, ranks have their own
// rows of B and the whole A; where it splits W's columns, their own columns of A and the whole B. An adapter is
// added before a product's sum over tp: no rows travel for it, and gradients of matrices that ranks have whole are
// parts of a sum, which step_reductions() of layout/reductions takes; so are those of a matrix that tp doesn't split,
// of which ranks have rows of x each. With adapter.dropout A reads d(x) = mask x / (1 - rate), in training alone. The
// step, the layer, the input, and a row's sample and position draw the same mask again, here and in every layout.
template <class T>
struct Adapter {
  const Context<T>& ctx;
  AdaptedProduct product;
  const LowRank<const T>& w;   // none in W
  const LowRank<acc_t<T>>& g;  // none in forward
  const LowRows<T>& rows;
  std::int64_t layer;
  const Batch& batch;

  double scale() const { return adapter_scale(ctx.spec().options.adapter); }

  // u(R, n r) = s d(x) Aᵀ
  void low_rows(View<const T, 2> x) const {
    if (w.a.empty()) return;
    x = dropped(x);
    note_product(ctx, rows.u, x.columns());
    ctx.gemm(ctx.stream, Transpose::no, Transpose::yes, scale(), x, w.a, 0.0, rows.u);
  }
  // y(R, N) += u Bᵀ, tensor by tensor; u as of low_rows().
  void forward(View<const T, 2> x, View<T, 2> y) const {
    if (w.a.empty()) return;
    low_rows(x);
    each([&](std::size_t i, std::int64_t first, View<const T, 2> u, View<T, 2>) {
      const View<T, 2> to = columns_of(y, first, w.b[i].rows());
      note_product(ctx, to, u.columns());
      ctx.gemm(ctx.stream, Transpose::no, Transpose::yes, 1.0, u, w.b[i], 1.0, to);
    });
  }
  // B: d_u = s dy B, which it leaves for W; dx(R, K) += d(d_u A).
  void backward_input(View<const T, 2> dy, View<T, 2> dx) const {
    if (w.a.empty()) return;
    each([&](std::size_t i, std::int64_t first, View<const T, 2>, View<T, 2> d_u) {
      const View<const T, 2> of = columns_of(dy, first, w.b[i].rows());
      note_product(ctx, d_u, of.columns());
      ctx.gemm(ctx.stream, Transpose::no, Transpose::no, scale(), of, w.b[i], 0.0, d_u);
    });
    if (!drops()) return linear_backward_input<T>(ctx, rows.d_u, w.a, dx, true);
    const View<T, 2> d_x = place_of_dropped(dx);
    linear_backward_input<T>(ctx, rows.d_u, w.a, d_x);
    residual_add<T>(ctx.stream, dx, d_x, dx, mask_of(dx));
  }
  // W: dB += dyᵀ u, tensor by tensor; dA += d_uᵀ d(x).
  void backward_weight(View<const T, 2> dy, View<const T, 2> x) const {
    if (g.a.empty()) return;
    each([&](std::size_t i, std::int64_t first, View<const T, 2> u, View<T, 2>) {
      linear_backward_weight<T>(ctx, columns_of(dy, first, g.b[i].rows()), u, g.b[i]);
    });
    linear_backward_weight<T>(ctx, rows.d_u, dropped(x), g.a);
  }

 private:
  bool drops() const { return ctx.training && ctx.spec().options.adapter.dropout > 0; }
  AdapterInput input() const { return input_of(ctx.spec(), product.product); }
  // Ranks have columns of their own of inputs that tp splits, and their own rows of those of down-projections.
  Dropout mask_of(View<const T, 2> x) const {
    const auto of_rows = [&](auto all) { return all.rows() == x.rows() ? all : own_rows(ctx.groups, all); };
    return {ctx.spec().options.adapter.dropout,
            random_key(ctx.services.seed, Purpose::dropout, static_cast<std::uint64_t>(ctx.step),
                       adapter_place(layer, input())),
            of_rows(batch.samples), of_rows(batch.positions), first_column(x)};
  }
  std::int64_t first_column(View<const T, 2> x) const {
    const bool split = input() == AdapterInput::attention_out || input() == AdapterInput::activation;
    return split ? ctx.groups.tp_rank() * x.columns() : 0;
  }
  View<T, 2> place_of_dropped(View<const T, 2> x) const {
    return View<T, 2>(ctx.scratch.dropped.data, {{x.rows(), x.columns()}});
  }
  View<const T, 2> dropped(View<const T, 2> x) const {
    if (!drops()) return x;
    const View<T, 2> y = place_of_dropped(x);
    dropout<T>(ctx.stream, x, y, mask_of(x));
    return y;
  }
  // f(i-th adapter, the first of its tensor's columns in y, its columns of u and of d_u)
  template <class F>
  void each(F f) const {
    const std::int64_t r = ctx.spec().options.adapter.rank;
    std::int64_t first = 0, i = 0;
    for (const AdaptedTensor& t : tensors_of(ctx.spec(), product)) {
      if (t.adapted) {
        const View<T, 2> d_u = rows.d_u.empty() ? View<T, 2>() : columns_of(rows.d_u, i * r, r);
        f(to_size(i), first, View<const T, 2>(columns_of(rows.u, i * r, r)), d_u);
        ++i;
      }
      first += t.rows;
    }
  }
};

}  // namespace forge

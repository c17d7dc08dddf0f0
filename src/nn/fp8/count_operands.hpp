#pragma once

#include "kernels/fp8/fp8_count_rows.hpp"
#include "nn/context.hpp"

namespace forge {

// The largest magnitudes of a product's operands.
struct OperandAmaxes {
  View<float, 1> a, b;
};

// A part of the pass whose numbers are counted so: not at all where it computes again what has been counted.
template <class T>
Context<T> with_counts(const Context<T>& ctx, const RoundingCounts& counts) {
  PassState<T> state = ctx;
  state.rounding.counts = counts;
  return {state, ctx.services};
}

// Those of an operand's rows, which are all of the batch or this tp rank's.
template <class T>
View<const std::int64_t, 1> samples_of(const Context<T>& ctx, std::int64_t rows) {
  const std::int64_t first = rows == ctx.rounding.samples.rows() ? 0 : ctx.groups.tp_rank() * rows;
  return ctx.rounding.samples.empty() ? ctx.rounding.samples : ctx.rounding.samples.slice(first, first + rows);
}

// The first rows and columns of x, an operand with these largest magnitudes; samples: of its rows, or empty.
template <class T>
void count_tensor(const Context<T>& ctx, BlockProduct product, RoundedTensor tensor, View<const T, 2> x,
                  std::int64_t rows, std::int64_t columns, const ScaledOperand& operand, View<const float, 1> amax,
                  View<const std::int64_t, 1> samples = {}) {
  const RoundingCounts& to = ctx.rounding.counts;
  fp8_count<T>(ctx.stream, x, rows, columns, operand, ctx.buffers.rounding.exact, amax, to.partials,
               View<double, 1>(to.counts.row(rounding_count_row(product, tensor)), {{rounding_count_columns}}),
               samples);
}

// Rows that were rounded before they went to the experts were counted there.
inline bool counted_before(const RoundingOptions& rounding, ProductOf of, BlockProduct product) {
  return rounding.dispatch &&
         product == (of == ProductOf::output ? BlockProduct::expert_gate_up : BlockProduct::expert_down);
}

// In steps that count: of a product in FP8 whose largest magnitudes are known, x and W, or of its input's gradient dy;
// of experts, all rows, and each one's matrix. Of a weight that was gathered as codes only these are here.
template <class T>
void count_operands(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, const ScaledProduct& p,
                    const OperandAmaxes& amax, View<const T, 2> a, View<const T, 2> b) {
  const RoundingCounts& to = ctx.rounding.counts;
  if (to.counts.empty() || of == ProductOf::weight_gradient) return;
  const std::int64_t lines = p.experts > 0 ? w.rows.count() : counted_lines(w.rows, ctx.groups.tp_rank());
  const bool before = counted_before(ctx.buffers.rounding, of, w.product);
  const View<const std::int64_t, 1> samples = p.experts > 0 ? View<const std::int64_t, 1>() : samples_of(ctx, a.rows());
  if (of == ProductOf::input_gradient) {
    if (!before) count_tensor<T>(ctx, w.product, RoundedTensor::dy, a, a.rows(), lines, p.a, amax.a, samples);
    return;
  }
  if (!before) count_tensor<T>(ctx, w.product, RoundedTensor::x, a, a.rows(), a.columns(), p.a, amax.a, samples);
  for (std::int64_t i = 0; to.weights && !p.coded && i < p.matrices(); ++i)
    count_tensor<T>(ctx, w.product, RoundedTensor::weights, b.slice(i * p.b.rows, (i + 1) * p.b.rows), lines,
                    b.columns(), p.b, amax.b.slice(i * p.b.groups(), (i + 1) * p.b.groups()));
}

}  // namespace forge

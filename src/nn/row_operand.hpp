#pragma once

#include "nn/fp8/count_operands.hpp"

namespace forge {

// A product of a block in FP8 on these rows as this pass runs it.
template <class T>
ScaledProduct product_in_fp8(const Context<T>& ctx, ProductOf of, std::int64_t rows, const MatrixSplit& w) {
  ScaledProduct p = scaled_product(ctx.buffers, of, rows, w, ctx.groups.tp_rank());
  p.coded = of != ProductOf::weight_gradient && ctx.buffers.rounding.has_coded_block(ctx.rounding.layer);
  set_known(p, ctx.buffers, of, w.product, ctx.rounding.kept.recomputes);
  return p;
}

// Whether the block keeps a product's amaxes: then it has cleared them, and they are raised.
template <class T>
bool keeps_amaxes_of(const Context<T>& ctx, const ScaledProduct& p) {
  return p.experts == 0 && !ctx.rounding.kept.rows.empty();
}

// Where the amaxes of a product's operands stand: of weights where those were taken behind the update, of the others
// where the block keeps them; else in the workspace, a's first, so that those that are taken together stand together.
template <class T>
OperandAmaxes place_of_amaxes(const Context<T>& ctx, ProductOf of, BlockProduct product, const ScaledProduct& p) {
  const Array<RoundedTensor, 2> tensors = rounded_operands(of);
  const auto place = [&](RoundedTensor tensor, std::int64_t begin, std::int64_t end) {
    const View<float, 1>& weight = ctx.rounding.weights[to_size(product)];
    if (tensor == RoundedTensor::weights && !weight.empty()) return weight;
    require(tensor != RoundedTensor::weights || p.takes_b(), "the largest magnitudes of a weight were not taken");
    return keeps_amaxes_of(ctx, p) ? ctx.rounding.kept.of(product, tensor)
                                   : ctx.services.rounding.amax.slice(begin, end);
  };
  return {place(tensors[0], 0, p.a.groups()), place(tensors[1], p.a.groups(), p.groups())};
}

// Rows (R, K) that a product reads, with their amaxes where measured() made them for it.
template <class T>
class RowOperand {
 public:
  RowOperand(View<const T, 2> values) : values_(values) {}
  RowOperand(View<T, 2> values) : values_(values) {}

  // make(amaxes) fills y, the first operand of a product with the weight w, which is the next to run in FP8; where that
  // would take amaxes, it finds those that `make` has left.
  template <class Make>
  static RowOperand measured(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, View<T, 2> y, Make make) {
    RowOperand operand(y);
    const RowAmaxes amaxes = amaxes_of(ctx, of, w, y.rows());
    operand.measured_ = amaxes.amax != nullptr;
    make(amaxes);
    return operand;
  }

  View<const T, 2> values() const { return values_; }
  bool measured() const { return measured_; }

 private:
  // A product whose rows of W are split reads x of all tp ranks, gathered: their rows aren't measured.
  static RowAmaxes amaxes_of(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, std::int64_t rows) {
    const bool gathered = of == ProductOf::output && w.rows.split && ctx.groups.tp_size() > 1;
    if (!ctx.rounding.block || gathered || !takes_amaxes_of_rows(ctx.buffers.rounding)) return {};
    const ScaledProduct p = product_in_fp8(ctx, of, rows, w);
    if (!p.takes_a()) return {};
    const ScaleLines& groups = p.a.by_row;
    return {place_of_amaxes(ctx, of, w.product, p).a.data, !groups.alone(rows), groups.shift[0], groups.each,
            samples_of(ctx, rows).data};
  }

  View<const T, 2> values_;
  bool measured_ = false;
};

}  // namespace forge

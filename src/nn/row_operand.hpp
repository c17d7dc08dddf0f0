#pragma once

#include <optional>

#include "kernels/fp8/fp8_operand.hpp"
#include "nn/fp8/count_operands.hpp"

namespace forge {

// A product of a block in FP8 on these rows as this pass runs it.
template <class T>
ScaledProduct product_in_fp8(const Context<T>& ctx, ProductOf of, std::int64_t rows, const MatrixSplit& w) {
  ScaledProduct p = scaled_product(ctx.buffers, of, rows, w, ctx.groups.tp_rank());
  p.coded = of != ProductOf::weight_gradient && ctx.buffers.rounding.has_coded_block(ctx.rounding.layer);
  set_known(p, ctx.buffers, of, w.product, ctx.rounding.saved.recomputes);
  return p;
}

// Whether the block keeps a product's amaxes: then it has cleared them, and they are raised.
template <class T>
bool saves_amaxes_of(const Context<T>& ctx, const ScaledProduct& p) {
  return p.experts == 0 && !ctx.rounding.saved.rows.empty();
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
    return saves_amaxes_of(ctx, p) ? ctx.rounding.saved.of(product, tensor)
                                   : ctx.scratch.rounding.amax.slice(begin, end);
  };
  return {place(tensors[0], 0, p.a.groups()), place(tensors[1], p.a.groups(), p.groups())};
}

// A product in FP8 and the amaxes of its operands.
struct FoundAmaxes {
  ScaledProduct p;
  OperandAmaxes amax;
  OperandAmaxes seen = {};  // where those of the numbers at hand go, for the steps to come
};
// … and their codes.
struct CodedProduct {
  FoundAmaxes found;
  CodeOperands codes;
};

// Of the rows of a first operand whose largest magnitude is found.
template <class T>
View<const std::int64_t, 1> recorded_samples(const Context<T>& ctx, const OperandAmaxes& seen, std::int64_t rows) {
  return seen.a.empty() ? View<const std::int64_t, 1>() : samples_of(ctx, rows);
}

// Rows (R, K) that a product reads, with their amaxes where measured() made them for it, or the codes of both operands
// (code_together() of nn/fp8/operands.hpp).
template <class T>
class RowOperand {
 public:
  RowOperand(View<const T, 2> values) : values_(values) {}
  RowOperand(View<T, 2> values) : values_(values) {}
  RowOperand(View<const T, 2> values, const CodedProduct& coded) : values_(values), coded_(coded) {}

  // make(amaxes) fills y, the first operand of a product with the weight w, which is the next to run in FP8; where that
  // would take amaxes, it finds those that `make` has left; where it has y's codes, `make` writes these, too.
  template <class Make>
  static RowOperand measured(const Context<T>& ctx, ProductOf of, const MatrixSplit& w, RowOperand y, Make make) {
    const RowAmaxes amaxes = y.coded_ ? with_codes(ctx, *y.coded_) : amaxes_of(ctx, of, w, y.values().rows());
    y.measured_ = amaxes.amax != nullptr;
    make(amaxes);
    return y;
  }

  View<const T, 2> values() const { return values_; }
  bool measured() const { return measured_; }
  const std::optional<CodedProduct>& coded() const { return coded_; }

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

  // For the history, and for the product.
  static RowAmaxes with_codes(const Context<T>& ctx, const CodedProduct& coded) {
    const Fp8Codes& to = coded.codes.a.codes;
    const OperandAmaxes& seen = coded.found.seen;
    const std::int64_t rows = to.codes.rows();
    std::uint8_t* const codes = ctx.scratch.rounding.a_codes.data;
    return {seen.a.data,
            true,
            0,
            rows,
            recorded_samples(ctx, seen, rows).data,
            {codes, to.codes.pitch, to.amax, to.format, to.exact}};
  }

  View<const T, 2> values_;
  bool measured_ = false;
  std::optional<CodedProduct> coded_;
};

}  // namespace forge

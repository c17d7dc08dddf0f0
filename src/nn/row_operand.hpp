#pragma once

#include "nn/context.hpp"

namespace forge {

// Rows (R, K) that a product reads and, of an operand that measured() made, the largest magnitude of each row. These
// stand in workspace that the next measured operand takes: who reads them later gets an error.
template <class T>
class RowOperand {
 public:
  RowOperand(View<const T, 2> values) : values_(values) {}
  RowOperand(View<T, 2> values) : values_(values) {}

  // make(amax) fills y, and amax (R) with the magnitudes of its rows, unless it is empty: products don't ask.
  template <class Make>
  static RowOperand measured(const Context<T>& ctx, View<T, 2> y, Make make) {
    RowOperand operand(y);
    if (ctx.rounding.block && takes_amaxes_of_rows(ctx.buffers.rounding)) {
      operand.last_ = &ctx.services.measured;
      operand.number_ = ++ctx.services.measured;
      operand.amaxes_ = ctx.services.rounding.measured.slice(0, y.rows());
    }
    make(operand.amaxes_);
    return operand;
  }

  View<const T, 2> values() const { return values_; }
  // (R), or empty: a product looks for itself.
  View<const float, 1> amaxes() const {
    require(!last_ || *last_ == number_, "the magnitudes of an operand's rows have given way to another's");
    return amaxes_;
  }

 private:
  View<const T, 2> values_;
  View<float, 1> amaxes_;
  const std::int64_t* last_ = nullptr;  // measured so far
  std::int64_t number_ = 0;             // of this one
};

}  // namespace forge

#pragma once

#include "fp8/scaled_product.hpp"
#include "model/buffers.hpp"

namespace forge {

// Largest magnitudes that a block's products take once in a microbatch and read again: those of x and of the weight are
// taken forward, for recomputed passes and backward; those of dy for the input's gradient, for the weight's. So it is
// where they are few, with a scale a sequence and one a matrix. The other recipes have as many as tokens or blocks, or
// round weights otherwise backward; `delayed` has its scales before.
bool keeps_amaxes(const RoundingOptions& rounding);

// To a product of this pass: which of its operands' it need not take.
inline void set_known(ScaledProduct& p, const RoundingOptions& rounding, ProductOf of, bool recomputes) {
  if (!keeps_amaxes(rounding)) return;
  p.knows_a = recomputes || of == ProductOf::weight_gradient;
  p.knows_b = recomputes || of != ProductOf::output;
}

struct KeptAmaxes {
  // Of each product of a block but experts': of x (sequences), of the weight (1), of dy (sequences).
  View<float, 2> rows;
  bool recomputes = false;  // what runs has run before

  void list(BufferLister& l, std::int64_t layer) {
    if (!keeps_amaxes(l.c.rounding) || !l.c.rounding.has_block(layer)) return;
    l.keep(rows, "largest magnitudes of operands", static_cast<std::int64_t>(to_size(BlockProduct::expert_gate_up)),
           2 * l.c.microbatch.sequences + 1, l.W);
  }
  View<float, 1> of(BlockProduct product, RoundedTensor tensor) const {
    const std::int64_t sequences = rows.columns() / 2;
    float* const x = rows.row(static_cast<std::int64_t>(to_size(product)));
    if (tensor == RoundedTensor::weights) return {x + sequences, {{1}}};
    return {tensor == RoundedTensor::x ? x : x + sequences + 1, {{sequences}}};
  }
};

}  // namespace forge
